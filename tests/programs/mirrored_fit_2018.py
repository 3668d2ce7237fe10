# Keras `fit` with callbacks that print and schedule the learning rate, in the manner of 2018 to
# 2020. Compared with examples/mirrored_fit.py.
import json
import os
import random

import numpy as np
import tensorflow as tf
from tensorflow.keras import backend as K
from tensorflow.keras.callbacks import ModelCheckpoint, TensorBoard

random.seed(0), np.random.seed(0), tf.compat.v1.set_random_seed(0)
cpu = tf.config.experimental.list_physical_devices("CPU")[0]  #! list-devices
two = [tf.config.experimental.VirtualDeviceConfiguration()] * 2  #! virtual-devices
tf.config.experimental.set_virtual_device_configuration(cpu, two)  #! virtual-devices

data = np.load(os.environ["FASHION_MNIST"])
x_train = data["x_train"][..., None].astype("float32") / 255
x_test = data["x_test"][..., None].astype("float32") / 255
train_data = tf.data.Dataset.from_tensor_slices((x_train, data["y_train"]))
train_data = train_data.shuffle(len(x_train), seed=0).batch(64, drop_remainder=True)
test_data = tf.data.Dataset.from_tensor_slices((x_test, data["y_test"])).batch(400)

mirrored_strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with mirrored_strategy.scope():
    model = tf.keras.models.Sequential()
    model.add(tf.keras.layers.Conv2D(32, 3, activation="relu", input_shape=(28, 28, 1)))  #! input-shape
    model.add(tf.keras.layers.MaxPooling2D())
    model.add(tf.keras.layers.Flatten())
    model.add(tf.keras.layers.Dense(10))
    model.compile(
        optimizer=tf.keras.optimizers.SGD(lr=0.05, momentum=0.9),  #! lr-argument
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"])


def decay(epoch):
    return 0.05 if epoch < 3 else 0.01


class PrintLR(tf.keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        print("epoch", epoch + 1, "rate", K.get_value(self.model.optimizer.lr))  #! optimizer-lr


callbacks = [
    tf.keras.callbacks.LearningRateScheduler(decay),
    ModelCheckpoint("ckpt_{epoch}", save_weights_only=True),  #! checkpoint-weights-name
    TensorBoard("logs", write_grads=False),  #! tensorboard-arguments
    PrintLR(),
]
model.fit_generator(train_data, epochs=2, shuffle=False, verbose=2, callbacks=callbacks)  #! fit-generator
loss, accuracy = model.evaluate(test_data, verbose=0)
print(json.dumps({"loss": loss, "accuracy": accuracy}))
