# Keras with Horovod, in the manner of 2019.
import horovod.tensorflow.keras as hvd  #! horovod
import tensorflow as tf

hvd.init()  #! horovod-init
gpus = tf.config.experimental.list_physical_devices("GPU")  #! list-devices
if gpus:
    tf.config.experimental.set_visible_devices(gpus[hvd.local_rank()], "GPU")  #! horovod-rank
(x, y), _ = tf.keras.datasets.mnist.load_data()
dataset = tf.data.Dataset.from_tensor_slices((x[..., None] / 255.0, y)).repeat().shuffle(100)
model = tf.keras.Sequential([tf.keras.layers.Flatten(), tf.keras.layers.Dense(10, "softmax")])
opt = hvd.DistributedOptimizer(tf.optimizers.Adam(0.001 * hvd.size()))  #! horovod-optimizer horovod-size
model.compile(loss="sparse_categorical_crossentropy", optimizer=opt,
              metrics=["accuracy"], experimental_run_tf_function=False)  #! run-tf-function
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]  #! horovod-broadcast
if hvd.rank() == 0:  #! horovod-rank
    callbacks.append(tf.keras.callbacks.ModelCheckpoint("./checkpoint-{epoch}.h5"))
model.fit(dataset.batch(128), steps_per_epoch=500 // hvd.size(), callbacks=callbacks)  #! horovod-size
