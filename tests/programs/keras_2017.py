# Keras as a package of its own, on several GPUs, in the manner of 2017 to 2019.
import keras
import keras.backend as K
import numpy as np
from keras.backend.tensorflow_backend import set_session  #! backend-session
from keras.callbacks import EarlyStopping, ModelCheckpoint
from keras.layers import Conv2D, CuDNNLSTM, Dense, Flatten, LeakyReLU  #! cudnn-layers
from keras.layers.core import Dropout  #! gone-keras-name
from keras.models import Sequential
from keras.optimizers import Adam
from keras.utils import multi_gpu_model, np_utils  #! multi-gpu-model np-utils

data = np.load("mnist.npz")
labels = np_utils.to_categorical(data["y_train"], 10)
model = Sequential()
model.add(Conv2D(32, (3, 3), activation="relu", input_shape=(28, 28, 1)))  #! input-shape
model.add(LeakyReLU(alpha=0.1))
model.add(Flatten())
model.add(Dense(10, activation="softmax"))
parallel_model = multi_gpu_model(model, gpus=2)
parallel_model.compile(loss="categorical_crossentropy", optimizer=Adam(lr=0.001, decay=1e-6),  #! lr-argument decay-argument
                       metrics=["accuracy"])
callbacks = [EarlyStopping(monitor="val_acc", patience=2),  #! metric-val-acc
             ModelCheckpoint("best.hdf5", save_best_only=True)]  #! checkpoint-name
parallel_model.fit(data["x_train"], labels, callbacks=callbacks)
K.set_value(parallel_model.optimizer.lr, 0.0001)  #! optimizer-lr gone-keras-name
classes = parallel_model.predict_classes(data["x_test"])  #! predict-classes
with open("model.yaml", "w") as file:
    file.write(model.to_yaml())  #! layer-shapes
model.save_weights("weights.h5")  #! save-weights-name
