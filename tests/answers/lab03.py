# ruff: noqa: E501
"""Lab 03: answers that must pass, in several styles, and answers that must be refused by name."""

TF = "import tensorflow as tf\nimport numpy as np\nimport keras\n"


def make_input(
    expression,
    images="images[..., np.newaxis] / np.float32(255)",
    shuffle="data.shuffle(len(labels), seed=seed)",
):
    return f"""{TF}
def make_input(images, labels, batch_size, seed):
    x = {images}
    data = tf.data.Dataset.from_tensor_slices((x, labels))
    data = {shuffle}
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


# one iterator for all epochs: Keras makes two for each epoch of a data set that ends
def program(rate="rates[epoch]", after="model.load_weights(best)", optimizer="'sgd'"):
    return f"""{TF}
def train_digits(strategy, loss, training, validation, batch_size, rates, folder):
    def batches(images, labels):
        data = tf.data.Dataset.from_tensor_slices((images[..., None] / np.float32(255), labels))
        return data.batch(batch_size).prefetch(1)
    with strategy.scope():
        model = keras.Sequential([keras.Input((28, 28, 1)), keras.layers.Flatten(), keras.layers.Dense(10, kernel_initializer="zeros")])
        model.compile({optimizer}, loss, metrics=["accuracy"])
    best = folder + "/best.weights.h5"
    keep = keras.callbacks.ModelCheckpoint(best, monitor="val_loss", save_best_only=True, save_weights_only=True)
    schedule = keras.callbacks.LearningRateScheduler(lambda epoch: {rate})
    train, held_out = batches(*training), batches(*validation)
    steps, looks = (sum(1 for _ in data) for data in (train, held_out))
    model.fit(train.repeat(), validation_data=held_out.repeat(), steps_per_epoch=steps, validation_steps=looks,
              epochs=len(rates), callbacks=[keep, schedule], verbose=0, shuffle=False)
    {after}
    return model.get_weights()
"""


# the lab's own make_callbacks stands above an answer
FROM_PARTS = (
    TF
    + """
def read(pair, size):
    return tf.data.Dataset.from_tensor_slices((pair[0][..., None] / np.float32(255), pair[1])).batch(size)
def make(strategy, loss):
    with strategy.scope():
        model = keras.Sequential([keras.Input((28, 28, 1)), keras.layers.Flatten(), keras.layers.Dense(10)])
        model.compile(keras.optimizers.SGD(0.1), loss, metrics=["accuracy"])
    model.set_weights([np.zeros((784, 10)), np.zeros(10)])
    return model
def train_digits(strategy, loss, training, validation, batch_size, rates, folder):
    model = make(strategy, loss)
    callbacks = make_callbacks(range(1, len(rates)), rates, [])
    every = folder + "/{epoch:02d}.weights.h5"
    callbacks.append(keras.callbacks.ModelCheckpoint(every, save_weights_only=True))
    train, held_out = read(training, batch_size), read(validation, batch_size)
    steps, looks = len(train), len(held_out)  # Keras makes two iterators an epoch of data that ends
    done = model.fit(train.repeat(), steps_per_epoch=steps, validation_data=held_out.repeat(), validation_steps=looks, epochs=len(rates), callbacks=callbacks, verbose=0, shuffle=False)
    best = int(np.argmin(done.history["val_loss"])) + 1
    model.load_weights(every.format(epoch=best))
    return tuple(model.get_weights())
"""
)
EPOCH_BY_EPOCH = (
    FROM_PARTS[: FROM_PARTS.index("def train_digits")]
    + """
def train_digits(strategy, loss, training, validation, batch_size, rates, folder):
    model = make(strategy, loss)
    train, held_out = read(training, batch_size), read(validation, batch_size)
    steps, looks = len(train), len(held_out)
    lowest = float("inf")
    for rate in rates:
        model.optimizer.learning_rate.assign(rate)
        model.fit(train.repeat(), steps_per_epoch=steps, verbose=0, shuffle=False)
        found = model.evaluate(held_out.repeat(), steps=looks, verbose=0)[0]
        if found < lowest:
            lowest, kept = found, model.get_weights()
    return kept
"""
)
EARLY_STOPPING = program(after="pass").replace(
    'keras.callbacks.ModelCheckpoint(best, monitor="val_loss", save_best_only=True, save_weights_only=True)',
    "keras.callbacks.EarlyStopping(monitor='val_loss', patience=len(rates), restore_best_weights=True)",
)
OWN_KEEPER = (
    TF
    + """
class Keeper(keras.callbacks.Callback):
    def __init__(self, rates):
        super().__init__()
        self.rates, self.kept = rates, (np.inf, None)
    def on_epoch_begin(self, epoch, logs=None):
        self.model.optimizer.learning_rate = self.rates[epoch]
    def on_epoch_end(self, epoch, logs=None):
        if logs["val_loss"] < self.kept[0]:
            self.kept = logs["val_loss"], [w.copy() for w in self.model.get_weights()]
def train_digits(strategy, loss, training, validation, batch_size, rates, folder):
    scaled = lambda pair: (pair[0].reshape(-1, 28, 28, 1).astype(np.float32) / 255, pair[1])
    with strategy.scope():
        inputs = keras.Input((28, 28, 1))
        model = keras.Model(inputs, keras.layers.Dense(10, kernel_initializer=keras.initializers.Zeros())(keras.layers.Flatten()(inputs)))
        model.compile(keras.optimizers.SGD(), loss)
    keeper = Keeper(rates)
    model.fit(*scaled(training), batch_size=batch_size, validation_data=scaled(validation), epochs=len(rates), callbacks=[keeper], shuffle=False, verbose=0)
    return keeper.kept[1]
"""
)
PIECEWISE = (
    program(rate="rate")
    .replace(
        "schedule = keras.callbacks.LearningRateScheduler(lambda epoch: rate)",
        "schedule = keras.callbacks.Callback()",
    )
    .replace(
        "model.compile('sgd',",
        """steps = len(training[0]) // batch_size
        decay = keras.optimizers.schedules.PiecewiseConstantDecay([steps * e - 1 for e in range(1, len(rates))], rates)
        model.compile(keras.optimizers.SGD(decay),""",
    )
)
TENSOR_LOOP = (
    TF
    + """
def train_digits(strategy, loss, training, validation, batch_size, rates, folder):
    with strategy.scope():
        kernel = tf.Variable(tf.zeros([784, 10]), aggregation=tf.VariableAggregation.SUM)
        bias = tf.Variable(tf.zeros([10]), aggregation=tf.VariableAggregation.SUM)
    def distribute(pair):
        pixels = pair[0].reshape(-1, 784) / np.float32(255)
        data = tf.data.Dataset.from_tensor_slices((pixels, pair[1])).batch(batch_size)
        return strategy.experimental_distribute_dataset(data)
    data, held_out = distribute(training), distribute(validation)
    @tf.function
    def step(x, y, rate):
        def replica(x, y, rate):
            with tf.GradientTape() as tape:
                total = tf.reduce_sum(loss(y, x @ kernel + bias)) / batch_size
            a, b = tape.gradient(total, [kernel, bias])
            kernel.assign_sub(rate * a); bias.assign_sub(rate * b)
        strategy.run(replica, args=(x, y, rate))
    @tf.function
    def look(x, y):
        return strategy.reduce("SUM", strategy.run(lambda x, y: tf.reduce_sum(loss(y, x @ kernel + bias)), args=(x, y)), axis=None)
    best, kept = None, None
    for rate in rates:
        for x, y in data:
            step(x, y, tf.constant(rate, tf.float32))
        found = sum(float(look(x, y)) for x, y in held_out)
        if best is None or found < best:
            best, kept = found, [kernel.numpy(), bias.numpy()]
    return kept
"""
)
ON_BATCH_FILES = (
    program(after="pass")
    .replace(
        'keep = keras.callbacks.ModelCheckpoint(best, monitor="val_loss", save_best_only=True, save_weights_only=True)',
        "keep = keras.callbacks.ModelCheckpoint(folder + '/{val_loss:.6f}.weights.h5', save_weights_only=True)",
    )
    .replace(
        "    pass\n    return model.get_weights()",
        "    import os\n    model.load_weights(os.path.join(folder, min(os.listdir(folder), key=lambda name: float(name.removesuffix('.weights.h5')))))\n    return model.get_weights()",
    )
)


DRAWN = "tf.random.stateless_uniform([784, 10], [1, 2], -0.09, 0.09)"


# what mistakes leave, by a loop of its own: `fit` takes five times as long to begin
def loop(
    scale=" / np.float32(255)",
    begin="",
    rate="rates[epoch]",
    epochs="len(rates)",
    start="tf.zeros([784, 10])",
    order="range(len(images))",
    score="look(*validation)",
    end="pass",
):
    return f"""{TF}
def train_digits(strategy, loss, training, validation, batch_size, rates, folder):
    {begin}
    with strategy.scope():
        summed = dict(aggregation=tf.VariableAggregation.SUM)
        kernel, bias = tf.Variable({start}, **summed), tf.Variable(tf.zeros([10]), **summed)
    def split(images, labels, order, size):
        pixels, n = images.reshape(-1, 784){scale}, strategy.num_replicas_in_sync
        for first in range(0, len(order), size):
            parts = np.array_split(order[first : first + size], n)
            each = lambda column: strategy.experimental_distribute_values_from_function(
                lambda context: tf.constant(column[parts[context.replica_id_in_sync_group]]))
            yield each(pixels), each(labels)
    @tf.function(reduce_retracing=True)
    def step(x, y, rate):
        def replica(x, y, rate):
            with tf.GradientTape() as tape:
                losses = loss(y, x @ kernel + bias)
            for weights, slope in zip([kernel, bias], tape.gradient(losses, [kernel, bias])):
                weights.assign_sub(rate * slope / batch_size)
            return tf.reduce_sum(losses)
        return strategy.reduce("SUM", strategy.run(replica, args=(x, y, rate)), axis=None)
    def look(images, labels):
        def replica(x, y):
            return tf.reduce_sum(loss(y, x @ kernel + bias))
        parts = split(images, labels, range(len(labels)), batch_size)
        return float(sum(strategy.reduce("SUM", strategy.run(replica, args=part), axis=None) for part in parts))
    def miss(images, labels):
        return np.sum((images.reshape(-1, 784){scale} @ kernel.numpy() + bias.numpy()).argmax(1) != labels)
    rng, scores = np.random.default_rng(1), []
    for epoch in range({epochs}):
        images, labels = training
        parts = split(images, labels, {order}, batch_size)
        seen = sum(float(step(x, y, tf.constant({rate}, tf.float32))) for x, y in parts)
        scores.append({score})
        if scores.index(min(scores)) == epoch:
            kept = [kernel.numpy(), bias.numpy()]
        {end}
    return kept
"""


def reload(*lines):
    body = "\n".join("    " + line for line in lines)
    return f"{TF}def save_and_reload(model, path, strategy):\n{body}\n"


TORN = "tf.data.Dataset.zip((data.map(lambda i, l: i).shuffle(500, seed=1), data.map(lambda i, l: l))).batch(batch_size)"
LOAD = "return keras.models.load_model(path)"
RIGHT = {
    "input": [
        make_input("data.batch(batch_size)"),
        make_input(
            "data.batch(batch_size).prefetch(tf.data.AUTOTUNE)",
            shuffle="data.cache().shuffle(1000, seed=seed, reshuffle_each_iteration=True)",
        ),
        make_input(
            "data.map(lambda i, l: (tf.cast(i, tf.float32)[..., None] / 255, l)).batch(batch_size)",
            "images",
        ),
        make_input(
            "data.batch(batch_size)",
            "tf.expand_dims(tf.image.convert_image_dtype(images, tf.float32), -1)",
        ),
        make_input(
            "data.batch(batch_size)",
            "np.multiply(images, 1 / 255, dtype=np.float32).reshape(-1, 28, 28, 1)",
        ),
        make_input(
            "tf.data.Dataset.zip((tf.data.Dataset.from_tensor_slices(x), tf.data.Dataset.from_tensor_slices(labels))).shuffle(10 ** 4, seed).batch(batch_size)",
            shuffle="None",
        ),
        make_input("data.padded_batch(batch_size)"),
        TF
        + """
def make_input(images, labels, batch_size, seed):
    rng = np.random.default_rng(seed)
    def batches():
        order = rng.permutation(len(labels))
        for k in range(0, len(labels), batch_size):
            ids = order[k:k + batch_size]
            yield images[ids, ..., None] / np.float32(255), labels[ids]
    kinds = tf.TensorSpec([None, 28, 28, 1], tf.float32), tf.TensorSpec([None], tf.int64)
    return tf.data.Dataset.from_generator(batches, output_signature=kinds)
""",
        make_input(
            "data.batch(batch_size).map(lambda i, l: (keras.layers.Rescaling(1 / 255)(tf.cast(i, tf.float32)), l))",
            "images.reshape(len(images), 28, 28, 1)",
        ),
    ],
    "model": [
        make_model(),
        FUNCTIONAL,
        make_model(options=", use_bias=True, kernel_initializer='zeros'"),
        make_model(options=", activation='linear'"),
        make_model(options=", bias_initializer='ones'"),
        make_model(optimizer="keras.optimizers.SGD(0.1, momentum=0.0)").replace(
            'metrics=["accuracy"]', 'metrics=["sparse_categorical_accuracy"]'
        ),
        make_model(optimizer="{'class_name': 'SGD', 'config': {'learning_rate': 0.1}}"),
        TF
        + """
class Digits(keras.Model):
    def __init__(self):
        super().__init__()
        self.flatten, self.logits = keras.layers.Flatten(), keras.layers.Dense(10)
        self.build((None, 28, 28, 1))
    def call(self, images):
        return self.logits(self.flatten(images))
    def build(self, shape):
        self.logits.build((None, 784))
        self.built = True
def make_model(strategy):
    scope = strategy.scope()
    scope.__enter__()
    model = Digits()
    optimizer = keras.optimizers.SGD()
    optimizer.learning_rate = 0.1
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["acc"])
    scope.__exit__(None, None, None)
    return model
""",
    ],
    "callbacks": [
        make_callbacks(),
        make_callbacks(callbacks="[note, rate]"),
        OWN_CALLBACK,
        make_callbacks(
            callbacks="[rate, keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: noted.append(logs['learning_rate']))]"
        ),
        make_callbacks("len([b for b in boundaries if not epoch < b])"),
        make_callbacks("int(np.digitize(epoch, boundaries))"),
        "import bisect\n" + make_callbacks("bisect.bisect_right(list(boundaries), epoch)"),
        make_callbacks().replace(
            "lambda epoch: rates[sum(b <= epoch for b in boundaries)]",
            "lambda epoch, rate: float(np.select([epoch < b for b in boundaries], rates[:-1], rates[-1]))",
        ),
    ],
    "program": [
        program(),
        FROM_PARTS,
        EPOCH_BY_EPOCH,
        EARLY_STOPPING,
        OWN_KEEPER,
        PIECEWISE,
        TENSOR_LOOP,
        ON_BATCH_FILES,
    ],
    "reload": [
        reload("model.save(path)", "with strategy.scope():", "    " + LOAD),
        reload(
            "model.save(str(path), overwrite=True)",
            "with strategy.scope():",
            "    " + LOAD.replace("path", "str(path), compile=True"),
        ),
        reload(
            "path.parent.mkdir(exist_ok=True)",
            "keras.models.save_model(model, path.as_posix())",
            "load = lambda: keras.models.load_model(path.as_posix())",
            "scope = strategy.scope()",
            "with scope:",
            "    return load()",
        ),
        reload(
            "with strategy.scope():",
            "    model.save(path)",
            "    " + LOAD,
        ),
        reload(
            "model.save(filepath=path)",
            "def load():",
            "    with strategy.scope():",
            "        " + LOAD,
            "return load()",
        ),
        reload(
            "import contextlib",
            "with contextlib.ExitStack() as stack:",
            "    model.save(path)",
            "    stack.enter_context(strategy.scope())",
            "    loaded = keras.saving.load_model(str(path))",
            "return loaded",
        ),
        reload(
            "model.save(path)",
            "with strategy.scope():",
            "    again = keras.models.load_model(path)",
            "    assert np.allclose(again.get_weights()[0], model.get_weights()[0])",
            "return again",
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
        "float-labels": make_input(
            "data.map(lambda x, y: (x, tf.cast(y, tf.float32))).batch(batch_size)"
        ),
        "not-scaled": make_input(
            "data.batch(batch_size)", "images[..., np.newaxis].astype('float32')"
        ),
        "rest-dropped": make_input("data.batch(batch_size, drop_remainder=True)"),
        "no-channel": make_input("data.batch(batch_size)", "images / np.float32(255)"),
        "one-batch": make_input("data.batch(batch_size).take(1)"),
        "endless": make_input("data.batch(batch_size).repeat()"),
        "endless (before batching)": make_input("data.repeat().batch(batch_size)"),
        "double-precision": make_input("data.batch(batch_size)", "images[..., None] / 255"),
        "": make_input(TORN),
        "not-shuffled": make_input("data.batch(batch_size)", shuffle="data"),
        "small-buffer": make_input(
            "data.batch(batch_size)", shuffle="data.shuffle(len(labels) * 2 // 3, seed=seed)"
        ),
        "same-each-epoch": make_input("data.cache().batch(batch_size)"),
        "same-each-epoch (on purpose)": make_input(
            "data.batch(batch_size)",
            shuffle="data.shuffle(999, seed=seed, reshuffle_each_iteration=False)",
        ),
        "seed-fixed": make_input(
            "data.batch(batch_size)", shuffle="data.shuffle(len(labels), seed=1)"
        ),
        "seed-ignored": make_input("data.batch(batch_size)", shuffle="data.shuffle(len(labels))"),
        "not-one-label": make_input(
            "data.batch(batch_size).map(lambda i, l: (i, tf.one_hot(l, 10)))"
        ),
        "not-one-label (three of them)": make_input(
            "data.batch(batch_size).map(lambda i, l: (i, tf.stack([l, l, l], 1)))"
        ),
        "scaled-256": make_input(
            "data.batch(batch_size)", images="images[..., np.newaxis] / np.float32(256)"
        ),
        "batches-shuffled": make_input(
            "data", shuffle="data.batch(batch_size).shuffle(len(labels), seed=seed)"
        ),
    },
    "model": {
        "outside-scope": make_model("contextlib.nullcontext()"),
        "compiled-outside": make_model().replace("        model.compile(", "    model.compile("),
        "with-momentum": make_model(optimizer="keras.optimizers.SGD(0.1, 0.9)"),
        "no-accuracy": make_model().replace('metrics=["accuracy"]', "metrics=[]"),
        "not-from-logits": make_model(loss=""),
        "other-rate": make_model(optimizer="'sgd'"),
        "softmax-layer": make_model(options=", activation='softmax'", loss=""),
        "adam": make_model(optimizer="keras.optimizers.Adam(0.1)"),
        "step-of-another": make_model(optimizer="SGD(0.1)").replace(
            "def make_model", "class SGD(keras.optimizers.Adam):\n    pass\ndef make_model"
        ),
    },
    "callbacks": {
        "late-by-one": make_callbacks("sum(b < epoch for b in boundaries)"),
        "early-by-one": make_callbacks("sum(b <= epoch + 1 for b in boundaries)"),
        "never-changed": make_callbacks(callbacks="[note]"),
        "noted-before": make_callbacks(when="begin", callbacks="[note, rate]"),
        "not-noted": make_callbacks(callbacks="[rate]"),
        "noted-each-batch": make_callbacks().replace(
            "on_epoch_end(self, epoch", "on_train_batch_end(self, batch"
        ),
        "boundaries-added": make_callbacks("sum(b <= epoch for b in np.cumsum(boundaries))"),
        "rates-sorted": make_callbacks().replace("rates[sum", "sorted(rates, reverse=True)[sum"),
        "variable-noted": make_callbacks().replace(
            "float(self.model.optimizer.learning_rate.numpy())",
            "self.model.optimizer.learning_rate",
        ),
    },
    "program": {
        "stopped-early": loop(end="if scores[-1] > min(scores): break"),
        "last-epoch": loop(score="-epoch"),
        "first-rate-kept": loop(rate="rates[0]"),
        "not-scaled": loop(scale=".astype('float32')"),
        "not-distributed": loop(begin="strategy = tf.distribute.get_strategy()"),
        "best-by-training": loop(score="seen"),
        "best-by-training (validated on training images)": loop(score="look(*training)"),
        "best-by-accuracy": loop(score="miss(*validation)"),
        "with-momentum": program(optimizer="keras.optimizers.SGD(0.1, momentum=0.9)"),
        "another-batch": loop(begin="batch_size //= strategy.num_replicas_in_sync"),
        "another-batch (doubled)": loop(begin="batch_size *= strategy.num_replicas_in_sync"),
        "one-epoch": loop(epochs="1"),
        "validation-trained": loop(
            begin="training = [np.concatenate(both) for both in zip(training, validation)]"
        ),
        "shuffled": loop(order="rng.permutation(len(images))"),
        "start-not-zero": loop(start=DRAWN),
        "start-not-zero (shuffled too)": loop(start=DRAWN, order="rng.permutation(len(images))"),
        "(one class of images twice)": loop(order="[*range(len(images)), *range(batch_size)]"),
    },
    "reload": {
        "outside-scope": reload("model.save(path)", LOAD),
        "not-saved": reload("return model"),
        "not-saved (an empty file)": reload("path.touch()", "return model"),
        "not-compiled": reload(
            "model.save(path)",
            "with strategy.scope():",
            "    return keras.models.load_model(path, compile=False)",
        ),
        "cloned": reload(
            "model.save(path)",
            "with strategy.scope():",
            "    again = keras.models.clone_model(model)",
            "    again.compile('sgd', 'mse')",
            "again.set_weights(model.get_weights())",
            "return again",
        ),
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
REFUSED = {
    "model": {
        "layer of 10 make, got [[784, 10]]": make_model(options=", use_bias=False"),
        "Flatten and one Dense layer": make_model().replace(
            "model.add(keras.layers.Dense(10",
            "model.add(keras.layers.Dense(32)); model.add(keras.layers.Dense(10",
        ),
        "Begin it with keras.Input": make_model().replace(
            "model.add(keras.Input((28, 28, 1)))", "pass"
        ),
        "float(variable.numpy()) is one": make_model().replace(
            "    return model", "    print(float(model.optimizer.learning_rate))\n    return model"
        ),
        "metrics=['accuracy']": make_model()
        .replace("compile(optimizer=", "compile(")
        .replace("loss=loss, metrics=", "loss, "),
        "must return a compiled model": make_model().replace("model.compile(", "dict("),
        "not a keras.Model": "class Fake:\n    compiled = True\n    weights = [1]\n"
        "def make_model(strategy):\n    return Fake()\n",
    },
    "callbacks": {
        "rates by the end of the first epoch": make_callbacks().replace(
            "    note = Note()",
            "    noted += [rates[sum(b <= e for b in boundaries)] for e in range(sum(boundaries) + 2)]\n"
            "    note = keras.callbacks.Callback()",
        ),
        "0 of the": OWN_CALLBACK.replace(
            "noted.append(", "self.seen = getattr(self, 'seen', [])\n            self.seen.append("
        ).replace(
            "    return",
            "        def on_train_end(self, logs=None):\n            noted.extend(self.seen)\n    return",
        ),
    },
    "input": {
        "must be a pair": make_input("data.map(lambda i, l: i).batch(batch_size)"),
        "not a tf.data.Dataset": make_input("[(x, labels)]"),
    },
    "reload": {
        "not a keras.Model": """
class Fake:
    def __init__(self, model):
        self.weights, self.optimizer, self.kernel = model.weights, model.optimizer, model
    def __call__(self, inputs):
        return self.kernel(inputs)
def save_and_reload(model, path, strategy):
    path.touch()
    return Fake(model)
""",
    },
    "program": {
        "train_digits returned None": "def train_digits(*_, **__):\n    pass\n",
        "a model, not its weights": TF
        + "def train_digits(*_, **__):\n    return keras.Sequential()\n",
        "float(variable.numpy()) is one": TF
        + """
def train_digits(strategy, *_, **__):
    with strategy.scope():
        return float(keras.optimizers.SGD(0.1).learning_rate)
""",
    },
}
