# ruff: noqa: E501
"""Lab 03: answers that must pass, in several styles, and answers that must be refused by name."""

TF = "import tensorflow as tf\nimport numpy as np\nimport keras\n"


def make_input(expression, images="images[..., np.newaxis] / np.float32(255)"):
    return f"""{TF}
def make_input(images, labels, batch_size):
    x = {images}
    data = tf.data.Dataset.from_tensor_slices((x, labels))
    return {expression}
"""


def make_model(
    scope="strategy.scope()",
    options="",
    loss="from_logits=True",
    optimizer="keras.optimizers.SGD(0.1)",
):
    return f"""{TF}import contextlib
def make_model(strategy):
    with {scope}:
        model = keras.Sequential()
        model.add(keras.Input((28, 28, 1)))
        model.add(keras.layers.Flatten())
        model.add(keras.layers.Dense(10{options}))
        loss = keras.losses.SparseCategoricalCrossentropy({loss})
        model.compile(optimizer={optimizer}, loss=loss, metrics=["accuracy"])
    return model
"""


FUNCTIONAL = (
    TF
    + """
def make_model(strategy):
    with strategy.scope():
        inputs = keras.Input((28, 28, 1))
        outputs = keras.layers.Dense(10, name="logits")(keras.layers.Flatten()(inputs))
        model = keras.Model(inputs, outputs)
    with strategy.scope():
        model.compile(keras.optimizers.SGD(learning_rate=1e-1),
                      loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                      metrics=[keras.metrics.SparseCategoricalAccuracy()])
    return model
"""
)


def make_callbacks(
    rule="sum(b <= epoch for b in boundaries)", when="end", callbacks="[rate, note]"
):
    return f"""{TF}
def make_callbacks(boundaries, rates, noted):
    class Note(keras.callbacks.Callback):
        def on_epoch_{when}(self, epoch, logs=None):
            noted.append(float(self.model.optimizer.learning_rate.numpy()))
    note = Note()
    rate = keras.callbacks.LearningRateScheduler(lambda epoch: rates[{rule}])
    return {callbacks}
"""


OWN_CALLBACK = (
    TF
    + """
def make_callbacks(boundaries, rates, noted):
    class Both(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            passed = int(np.searchsorted(boundaries, epoch, side="right"))
            self.model.optimizer.learning_rate = rates[passed]
        def on_epoch_end(self, epoch, logs=None):
            noted.append(np.float32(self.model.optimizer.learning_rate.numpy()))
    return [Both()]
"""
)


def restore(expression):
    return f"""{TF}from pathlib import Path
def restore_best(model, folder, losses):
    {expression}
"""


def reload(*lines):
    body = "\n".join("    " + line for line in lines)
    return f"{TF}def save_and_reload(model, path, strategy):\n{body}\n"


TORN = "tf.data.Dataset.zip((data.map(lambda i, l: i).shuffle(500, seed=1), data.map(lambda i, l: l))).batch(batch_size)"
LOAD = "return keras.models.load_model(path)"
FILE = 'f"{folder}/epoch-{k:02d}.weights.h5"'
RIGHT = {
    "input": [
        make_input("data.batch(batch_size)"),
        make_input("data.cache().shuffle(1000).batch(batch_size).prefetch(tf.data.AUTOTUNE)"),
        make_input(
            "data.map(lambda i, l: (tf.cast(i, tf.float32)[..., None] / 255, l)).batch(batch_size)",
            "images",
        ),
        make_input(
            "data.batch(batch_size)",
            "tf.expand_dims(tf.image.convert_image_dtype(images, tf.float32), -1)",
        ),
    ],
    "model": [
        make_model(),
        FUNCTIONAL,
        make_model(options=", use_bias=True, kernel_initializer='zeros'"),
    ],
    "callbacks": [
        make_callbacks(),
        make_callbacks(callbacks="[note, rate]"),
        OWN_CALLBACK,
        make_callbacks(
            callbacks="[rate, keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: noted.append(logs['learning_rate']))]"
        ),
        make_callbacks("len([b for b in boundaries if not epoch < b])"),
    ],
    "restore": [
        restore(f"k = losses.index(min(losses)) + 1; model.load_weights({FILE})"),
        restore(
            "model.load_weights(sorted(Path(folder).glob('*.weights.h5'))[int(np.argmin(losses))])"
        ),
        restore(f"_, k = min((x, i) for i, x in enumerate(losses, 1)); model.load_weights({FILE})"),
    ],
    "reload": [
        reload("model.save(path)", "with strategy.scope():", "    " + LOAD),
        reload(
            "model.save(str(path))",
            "with strategy.scope():",
            "    " + LOAD.replace("path", "str(path), compile=False"),
        ),
        reload(
            "keras.saving.save_model(model, path)",
            "with strategy.scope():",
            "    again = keras.saving.load_model(path)",
            "return again",
        ),
    ],
}
WRONG = {
    "input": {
        "not-scaled": make_input(
            "data.batch(batch_size)", "images[..., np.newaxis].astype('float32')"
        ),
        "rest-dropped": make_input("data.batch(batch_size, drop_remainder=True)"),
        "no-channel": make_input("data.batch(batch_size)", "images / np.float32(255)"),
        "one-batch": make_input("data.batch(batch_size).take(1)"),
        "double-precision": make_input("data.batch(batch_size)", "images[..., None] / 255"),
        "": make_input(TORN),
    },
    "model": {
        "outside-scope": make_model("contextlib.nullcontext()"),
        "no-accuracy": make_model().replace('metrics=["accuracy"]', "metrics=[]"),
        "not-from-logits": make_model(loss=""),
        "other-rate": make_model(optimizer="'sgd'"),
        "softmax-layer": make_model(options=", activation='softmax'", loss=""),
        "adam": make_model(optimizer="keras.optimizers.Adam(0.1)"),
    },
    "callbacks": {
        "late-by-one": make_callbacks("sum(b < epoch for b in boundaries)"),
        "early-by-one": make_callbacks("sum(b <= epoch + 1 for b in boundaries)"),
        "never-changed": make_callbacks(callbacks="[note]"),
        "noted-before": make_callbacks(when="begin", callbacks="[note, rate]"),
        "not-noted": make_callbacks(callbacks="[rate]"),
        "variable-noted": make_callbacks().replace(
            "float(self.model.optimizer.learning_rate.numpy())",
            "self.model.optimizer.learning_rate",
        ),
    },
    "restore": {
        "last-epoch": restore(f"k = len(losses); model.load_weights({FILE})"),
        "highest-loss": restore(f"k = int(np.argmax(losses)) + 1; model.load_weights({FILE})"),
        "counted-from-zero": restore(
            f"k = max(int(np.argmin(losses)), 1); model.load_weights({FILE})"
        ),
        "not-loaded": restore("pass"),
    },
    "reload": {
        "outside-scope": reload("model.save(path)", LOAD),
        "not-saved": reload("return model"),
        "fresh-weights": reload(
            "model.save(path)",
            "with strategy.scope():",
            "    return keras.models.clone_model(model)",
        ),
        "another-strategy": reload(
            "model.save(path)",
            "from utils.strategies import make_strategy",
            "with make_strategy('mirrored', 4).scope():",
            "    " + LOAD,
        ),
    },
}
