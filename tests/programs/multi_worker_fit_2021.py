# Keras `fit` across workers with callbacks, in the manner of 2021. Compared with
# examples/multi_worker_fit.py, on two workers with Keras 2.
import json
import os

import numpy as np
import tensorflow as tf

strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy()  #! experimental-multi-worker
tf.keras.utils.set_random_seed(0)
task_id = json.loads(os.environ["TF_CONFIG"])["task"]["index"]


def make_dataset(split, batch_size):
    data = np.load(os.environ["FASHION_MNIST"])
    images = data["x_" + split][..., None].astype("float32") / 255
    dataset = tf.data.Dataset.from_tensor_slices((images, data["y_" + split]))
    if split == "train":
        dataset = dataset.shuffle(len(images), seed=0)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return dataset.batch(batch_size, drop_remainder=split == "train").with_options(options)


with strategy.scope():
    multi_worker_model = tf.keras.Sequential([
        tf.keras.layers.InputLayer(input_shape=(28, 28, 1)),  #! input-shape
        tf.keras.layers.Conv2D(32, 3, activation="relu"),
        tf.keras.layers.MaxPooling2D(),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(10),
    ])
    multi_worker_model.compile(
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=tf.keras.optimizers.SGD(lr=0.05, momentum=0.9),  #! lr-argument
        metrics=["accuracy"])
callbacks = [tf.keras.callbacks.experimental.BackupAndRestore(f"backup-{task_id}")]  #! backup-experimental
multi_worker_model.fit(make_dataset("train", 64), epochs=2, callbacks=callbacks, verbose=0)  #! keras-fit-multi-worker
loss, accuracy = multi_worker_model.evaluate(make_dataset("test", 400), verbose=0)
print(json.dumps({"loss": loss, "accuracy": accuracy}))
multi_worker_model.save("model" if task_id == 0 else "aside")  #! save-folder
