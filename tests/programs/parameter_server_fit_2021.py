# Keras `fit` on parameter servers, in the manner of 2021: it needs --keras legacy.
import tensorflow as tf
from tensorflow.keras.layers.experimental.preprocessing import StringLookup  #! experimental-preprocessing

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    tf.distribute.Server(resolver.cluster_spec(), resolver.task_type, resolver.task_id).join()
partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(256 << 10, 2)
strategy = tf.distribute.experimental.ParameterServerStrategy(resolver, partitioner)  #! experimental-parameter-server


def dataset_fn(input_context):
    batch = input_context.get_per_replica_batch_size(64)
    x, y = tf.random.uniform((10, 10)), tf.random.uniform((10,))
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(10).repeat()
    return dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id).batch(batch)


with strategy.scope():
    model = tf.keras.models.Sequential([tf.keras.layers.Dense(10)])
    model.compile(tf.keras.optimizers.legacy.SGD(), loss="mse", steps_per_execution=10)  #! legacy-optimizers
callbacks = [
    tf.keras.callbacks.ModelCheckpoint(filepath="/tmp/my_working_dir/ckpt"),  #! checkpoint-name
    tf.keras.callbacks.experimental.BackupAndRestore(backup_dir="/tmp/backup"),  #! backup-experimental
]
data = tf.keras.utils.experimental.DatasetCreator(dataset_fn)  #! dataset-creator
model.fit(data, epochs=5, steps_per_epoch=20, callbacks=callbacks)  #! keras-fit-parameter-server
