# ruff: noqa: E501
"""Lab 11: answers that must pass, in several styles, and answers that must be refused by name."""

HEAD = """
import tensorflow as tf
import numpy as np
from distlab.labs.lab11.exercise import augment, parse
"""
ROLL = """
def augment_batch(images, labels, ids):
    n = tf.shape(images)[0]
    flip = tf.random.uniform([n, 1, 1, 1]) < 0.5
    images = tf.where(flip, images[:, :, ::-1], images)
    shift = tf.random.uniform([n], -2, 3, tf.int32)
    order = (tf.range(28)[tf.newaxis] - shift[:, tf.newaxis]) % 28
    images = tf.gather(images, order, axis=2, batch_dims=1)
    return tf.cast(images, tf.float32) / 255, labels, ids
"""
MATRIX = """
def augment_batch(images, labels, ids):
    count = tf.shape(images)[0]
    columns = (tf.range(28) - tf.random.uniform([count, 1], -2, 3, tf.int32)) % 28
    columns = tf.where(tf.random.uniform([count, 1]) < 0.5, 27 - columns, columns)
    moves = tf.one_hot(columns, 28, axis=1) / 255
    return tf.matmul(tf.cast(images[..., 0], tf.float32), moves)[..., tf.newaxis], labels, ids
"""
PAD = """
def augment_batch(images, labels, ids):
    pixels = tf.image.random_flip_left_right(tf.image.convert_image_dtype(images, tf.float32))
    wide = tf.concat([pixels[:, :, -2:], pixels, pixels[:, :, :2]], axis=2)
    first = tf.random.uniform([tf.shape(images)[0], 1], 0, 5, tf.int32)
    return tf.gather(wide, first + tf.range(28), axis=2, batch_dims=1), labels, ids
"""
BY_SHIFT = """
def augment_batch(images, labels, ids):
    n = tf.shape(images)[0]
    both = tf.stack([images, tf.reverse(images, [2])])
    every = tf.concat([tf.roll(both, s, axis=3) for s in range(-2, 3)], axis=0)
    pick = tf.random.uniform([n], 0, 10, tf.int32)
    chosen = tf.gather_nd(every, tf.stack([pick, tf.range(n)], axis=1))
    return tf.cast(chosen, tf.float32) / 255.0, labels, ids
"""
NUMPY = """
def augment_batch(images, labels, ids):
    def change(pixels):
        rng = np.random.default_rng()
        n = len(pixels)
        columns = (np.arange(28) - rng.integers(-2, 3, size=(n, 1))) % 28
        columns = np.where(rng.random((n, 1)) < 0.5, 27 - columns, columns)
        return np.take_along_axis(pixels, columns[:, None, :, None], axis=2).astype(np.float32) / 255
    changed = tf.numpy_function(change, [images], tf.float32)
    return tf.ensure_shape(changed, [None, 28, 28, 1]), labels, ids
"""
PARSE_BATCH = """
def parse_batch(records):
    number = tf.io.FixedLenFeature([], tf.int64)
    found = tf.io.parse_example(records, {"image": tf.io.FixedLenFeature([], tf.string), "label": number, "id": number})
    images = tf.map_fn(lambda png: tf.io.decode_png(png, 1), found["image"], fn_output_signature=tf.TensorSpec([28, 28, 1], tf.uint8))
    return images, found["label"], found["id"]
"""


def pipeline(expression, *functions):
    parts = HEAD + "".join(functions or (ROLL, PARSE_BATCH))
    return f"""{parts}
def make_fast(files, batch_size):
    records = tf.data.TFRecordDataset(list(files))
    return {expression}
"""


KEPT_IN_MEMORY = (
    HEAD
    + """
def make_fast(files, batch_size):
    everything = tf.data.TFRecordDataset(files).map(parse).batch(10**6)
    images, labels, ids = (column.numpy() for column in next(iter(everything)))
    def change(pixels, label, number):
        n = tf.shape(pixels)[0]
        order = (tf.range(28) + tf.random.uniform([n, 1], -2, 3, tf.int32)) % 28
        mirror = tf.cast(tf.random.uniform([n, 1]) < 0.5, tf.int32)
        order = mirror * (27 - order) + (1 - mirror) * order
        return tf.gather(pixels, order, axis=2, batch_dims=1), label, number
    scaled = images.astype(np.float32) / 255
    return tf.data.Dataset.from_tensor_slices((scaled, labels, ids)).batch(batch_size).map(change)
"""
)
NAIVE = (
    HEAD
    + """
def make_naive(files, batch_size):
    records = tf.data.Dataset.from_tensor_slices(list(files)).flat_map(tf.data.TFRecordDataset)
    return records.map(parse).map(augment).batch(batch_size)
"""
)
OTHER_EPOCHS = """
class Fake:
    def __init__(self, dataset):
        self.dataset, self.epochs = dataset, 0
    def __iter__(self):
        self.epochs += 1
        return iter(self.dataset if self.epochs < 3 else self.dataset.take(1).cache())
def make_fast(files, batch_size):
    return Fake(make_naive(files, batch_size))
"""
OTHER_CLASS = """
class Fake(tf.data.Dataset):
    def __init__(self, dataset):
        self.dataset, self.epochs = dataset, 0
        super().__init__(dataset._variant_tensor)
    def _inputs(self):
        return [self.dataset]
    @property
    def element_spec(self):
        return self.dataset.element_spec
    def __iter__(self):
        self.epochs += 1
        return iter(self.dataset if self.epochs < 3 else self.dataset.take(1).cache())
def make_fast(files, batch_size):
    return Fake(make_naive(files, batch_size))
"""
IN_TURN = """
def make_fast(files, batch_size):
    dataset = make_naive(files, batch_size)
    epochs, turns = [list(dataset), list(dataset)], []
    def play():
        turns.append(0)
        yield from epochs[len(turns) % 2]
    return tf.data.Dataset.from_generator(play, output_signature=dataset.element_spec)
"""
AHEAD = """
def make_fast(files, batch_size):
    dataset = make_naive(files, batch_size)
    ready = [list(dataset) for epoch in range(8)]
    def play():
        yield from ready.pop() if ready else dataset
    return tf.data.Dataset.from_generator(play, output_signature=dataset.element_spec)
"""
SOME = """
def augment_batch(images, labels, ids):
    few = tf.map_fn(lambda image: augment(image, 0, 0)[0], tf.boolean_mask(images, ids < 16), fn_output_signature=tf.float32)
    rest = tf.cast(tf.boolean_mask(images, ids >= 16), tf.float32) / 255
    order = tf.argsort(tf.cast(ids >= 16, tf.int32), stable=True)
    return tf.concat([few, rest], 0), tf.gather(labels, order), tf.gather(ids, order)
"""
HALF = """
def make_fast(files, batch_size):
    dataset, before = make_naive(files, batch_size), []
    def play():
        epoch = [[part.numpy() for part in batch] for batch in dataset]
        for (images, _, _), (others, _, _) in zip(epoch, before[-1:] and before[-1]):
            images[len(before) % 2 :: 2] = others[len(before) % 2 :: 2]
        before.append(epoch)
        yield from map(tuple, epoch)
    return tf.data.Dataset.from_generator(play, output_signature=dataset.element_spec)
"""
KNOWN = """
from utils.data import load
def make_fast(files, batch_size):
    train = load("fashion_mnist").train
    known = train.images[:2000, ..., None], train.labels[:2000].astype(np.int64), np.arange(2000)
    return tf.data.Dataset.from_tensor_slices(known).batch(batch_size).map(augment_batch)
"""
CACHED = "records.map(parse).cache().batch(batch_size).map(augment_batch)"


def one(name, arguments, *lines):
    body = "\n".join("    " + line for line in lines)
    return f"import numpy as np\ndef {name}({arguments}):\n{body}\n"


def rate(expression):
    return one("predict_rate", "stages, size, overlapped", f"return {expression}")


def calls(expression):
    return one("count_calls", "n, epochs, after", f"return {expression}")


RIGHT = {
    "pipeline": [
        pipeline("records.batch(batch_size).map(parse_batch).cache().map(augment_batch)"),
        pipeline(
            "records.map(parse).cache().shuffle(2000).batch(batch_size).map(augment_batch).prefetch(2)",
            MATRIX,
        ),
        pipeline(
            "tf.data.Dataset.from_tensor_slices(files).interleave(tf.data.TFRecordDataset, num_parallel_calls=tf.data.AUTOTUNE).batch(batch_size).map(parse_batch, num_parallel_calls=2).cache().map(augment_batch, num_parallel_calls=2).prefetch(tf.data.AUTOTUNE)"
        ),
        pipeline("records.map(parse).batch(batch_size).cache().map(augment_batch)", PAD),
        pipeline("records.map(parse).batch(batch_size).cache().map(augment_batch)", BY_SHIFT),
        pipeline("records.map(parse).batch(batch_size).cache().map(augment_batch)", NUMPY),
        pipeline(
            "records.map(parse).batch(batch_size).cache().shuffle(8).map(augment_batch).prefetch(tf.data.AUTOTUNE)",
            ROLL,
        ),
        KEPT_IN_MEMORY,
    ],
    "rate": [
        rate("size / (max(stages) if overlapped else sum(stages))"),
        rate("size / (np.max if overlapped else np.sum)(np.array(stages))"),
        rate("min(size / s for s in stages) if overlapped else size * 1 / sum(stages)"),
        rate("size * (1 / max(stages) if overlapped else 1 / np.sum(stages))"),
        rate("size / {True: max, False: sum}[overlapped](stages)"),
        one(
            "predict_rate",
            "stages, size, overlapped",
            "slowest = total = 0.0",
            "for seconds in stages:",
            "    total += seconds",
            "    slowest = seconds if seconds > slowest else slowest",
            "return size / (slowest if overlapped else total)",
        ),
        one(
            "predict_rate",
            "stages, size, overlapped",
            "batches, clock, free = 4000, 0.0, [0.0] * len(stages)",
            "for _ in range(batches):",
            "    ready = 0.0 if overlapped else clock",
            "    for k, seconds in enumerate(stages):",
            "        ready = free[k] = max(ready, free[k]) + seconds",
            "    clock = ready",
            "return batches * size / clock",
        ),
        rate(
            "size / sorted(stages)[-1] if overlapped else float(np.float64(size) / np.add.reduce(stages))"
        ),
    ],
    "calls": [
        calls(
            "n * (epochs if after == 'nothing' else 1), n * (1 if after == 'augment' else epochs)"
        ),
        calls(
            "np.array({'nothing': [epochs, epochs], 'parse': [1, epochs], 'augment': [1, 1]}[after]) * n"
        ),
        calls(
            "[float(n * epochs) if after == 'nothing' else n, n if after == 'augment' else n * epochs]"
        ),
        calls(
            "tuple(n * (1 if cached else epochs) for cached in (after != 'nothing', after == 'augment'))"
        ),
        calls(
            "{'nothing': (n * epochs, n * epochs), 'parse': (n, n * epochs), 'augment': (n, n)}[after]"
        ),
        one(
            "count_calls",
            "n, epochs, after",
            "decoded = augmented = 0",
            "for epoch in range(epochs):",
            "    decoded += n if epoch == 0 or after == 'nothing' else 0",
            "    augmented += n if epoch == 0 or after != 'augment' else 0",
            "return decoded, augmented",
        ),
        calls("np.multiply(n, [epochs ** (after == 'nothing'), epochs ** (after != 'augment')])"),
        one(
            "count_calls",
            "n, epochs, after",
            "again = (epochs - 1) * n",
            "if after == 'augment':",
            "    return n, n",
            "return n + (again if after == 'nothing' else 0), n + again",
        ),
    ],
}
WRONG = {
    "pipeline": {
        "frozen-augmentation": pipeline(
            "records.batch(batch_size).map(parse_batch).map(augment_batch).cache().prefetch(1)"
        ),
        "examples-lost": pipeline(
            "records.batch(batch_size, drop_remainder=True).map(parse_batch).cache().map(augment_batch)"
        ),
        "examples-doubled": pipeline(CACHED + ".repeat()"),
        "not-faster": pipeline("records.map(parse).map(augment).batch(batch_size).prefetch(1)"),
        "labels-torn": pipeline(CACHED + ".map(lambda i, l, n: (i, tf.reverse(l, [0]), n))"),
        "not-augmented": pipeline(
            CACHED, "def augment_batch(i, l, n):\n    return tf.cast(i, tf.float32) / 255, l, n\n"
        ),
        "never-flipped": pipeline(CACHED, ROLL.replace("< 0.5", "< 0.0")),
        "never-shifted": pipeline(CACHED, ROLL.replace("-2, 3", "0, 1")),
        "few-forms": pipeline(
            CACHED,
            ROLL.replace(
                "flip = tf.random.uniform([n, 1, 1, 1])",
                "coin = tf.random.uniform([n])\n    flip = coin[:, None, None, None]",
            ).replace("tf.random.uniform([n], -2, 3, tf.int32)", "tf.cast(coin < 0.5, tf.int32)"),
        ),
        "one-for-all": pipeline(
            CACHED,
            ROLL.replace(
                "tf.random.uniform([n], -2, 3, tf.int32)",
                "tf.repeat(tf.random.uniform([], -2, 3, tf.int32), n)",
            ),
        ),
        "only-some": pipeline(
            CACHED,
            ROLL.replace(
                "tf.random.uniform([n], -2, 3, tf.int32)",
                "tf.where(tf.range(n) < n // 2, tf.random.uniform([n], -2, 3, tf.int32), 0)",
            ),
        ),
        "other-images": pipeline(CACHED, ROLL.replace(" / 255", "")),
        "not-batches": pipeline("records.map(parse).cache().map(augment)"),
        "frozen-augmentation (two epochs in turn)": NAIVE + IN_TURN,
        "not-augmented (but for those with small ids)": pipeline(CACHED, SOME),
        "only-some (half of the images are those of the epoch before)": NAIVE + HALF,
        "labels-torn (the examples that an earlier version drew)": HEAD + ROLL + KNOWN,
        "ahead": NAIVE + AHEAD,
        "not-faster (a class of its own, with other epochs later)": NAIVE + OTHER_CLASS,
    },
    "rate": {
        "fastest-stage": rate("size / (min(stages) if overlapped else sum(stages))"),
        "overlap-swapped": rate("size / (sum(stages) if overlapped else max(stages))"),
        "always-added": rate("size / sum(stages)"),
        "mean-stage": rate("size / np.mean(stages)"),
        "batches-counted": rate("1 / (max(stages) if overlapped else sum(stages))"),
        "(upside down)": rate("(max(stages) if overlapped else sum(stages)) / size"),
    },
    "calls": {
        "cache-ignored": calls("(n * epochs, n * epochs)"),
        "all-cached": calls("(n * epochs,) * 2 if after == 'nothing' else (n, n)"),
        "parsed-again": calls(
            "(n if after == 'parse' else n * epochs), (n if after == 'augment' else n * epochs)"
        ),
        "first-epoch-free": calls(
            "(n * (epochs - 1) if after == 'nothing' else 0), n * (1 if after == 'augment' else epochs)"
        ),
        "first-epoch-free (with a cache)": calls(
            "(n * epochs if after == 'nothing' else 0), (0 if after == 'augment' else n * epochs)"
        ),
        "later-epochs-only": calls(
            "(n * epochs if after == 'nothing' else n), n * {'nothing': epochs, 'parse': epochs - 1, 'augment': 1}[after]"
        ),
    },
}

READY = """
from utils.input_pipeline.parsing import augment_batch, parse_batch
"""
REFUSED = {
    "pipeline": {
        "calls utils.input_pipeline": pipeline(
            "records.batch(batch_size).map(parse_batch).cache().map(augment_batch)", READY
        ),
        "The lab doesn't allow that": pipeline(
            CACHED, "from utils.input_pipeline import parsing\n"
        ).replace("map(augment_batch)", "map(lambda i, l, n: parsing.augment_batch(i, l, n))"),
        "returned None": pipeline("None"),
        "tf.data.Dataset": NAIVE + OTHER_EPOCHS,
    },
}
SECONDS = {"not-faster": (0.9, 0.0), "ahead": (0.2, 100.0)}  # of an epoch, and before the first


def find_times(answer):
    """Return what an answer takes on clocks that are given: a naive epoch takes a second."""
    labels = (why for why, text in WRONG["pipeline"].items() if text == answer)
    return SECONDS.get(next(labels, "").partition(" (")[0], (0.2, 0.0))
