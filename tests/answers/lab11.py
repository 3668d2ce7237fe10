# ruff: noqa: E501
"""Lab 11: answers that must pass, in several styles, and answers that must be refused by name."""

HEAD = """
import tensorflow as tf
from distlab.exercises.lab11 import augment, augment_batch, parse, parse_batch
def make_fast(files, batch_size):
    records = tf.data.TFRecordDataset(list(files))
"""


def pipeline(expression):
    return HEAD + f"    return {expression}\n"


ENDLESS = "records.batch(batch_size).map(parse_batch).cache().map(augment_batch).repeat()"


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
            "records.map(parse).cache().shuffle(2000).batch(batch_size).map(augment_batch).prefetch(2)"
        ),
        pipeline(
            "tf.data.Dataset.from_tensor_slices(files).interleave(tf.data.TFRecordDataset, num_parallel_calls=tf.data.AUTOTUNE).batch(batch_size).map(parse_batch, num_parallel_calls=2).cache().map(augment_batch, num_parallel_calls=2).prefetch(tf.data.AUTOTUNE)"
        ),
    ],
    "rate": [
        rate("size / (max(stages) if overlapped else sum(stages))"),
        rate("size / (np.max if overlapped else np.sum)(np.array(stages))"),
        rate("min(size / s for s in stages) if overlapped else size * 1 / sum(stages)"),
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
        "examples-doubled": pipeline(ENDLESS),
        "not-faster": pipeline("records.map(parse).map(augment).batch(batch_size).prefetch(1)"),
        "labels-torn": pipeline(
            "tf.data.Dataset.zip((records.batch(batch_size).map(parse_batch).cache().map(augment_batch), records.batch(batch_size).map(parse_batch).map(lambda i, l, n: tf.reverse(l, [0])).cache())).map(lambda a, l: (a[0], l, a[2]))"
        ),
    },
    "rate": {
        "overlap-swapped": rate("size / (sum(stages) if overlapped else max(stages))"),
        "always-added": rate("size / sum(stages)"),
        "mean-stage": rate("size / np.mean(stages)"),
        "batches-counted": rate("1 / (max(stages) if overlapped else sum(stages))"),
    },
    "calls": {
        "cache-ignored": calls("(n * epochs, n * epochs)"),
        "all-cached": calls("(n * epochs,) * 2 if after == 'nothing' else (n, n)"),
        "first-epoch-free": calls(
            "(n * (epochs - 1) if after == 'nothing' else 0), n * (1 if after == 'augment' else epochs)"
        ),
    },
}
