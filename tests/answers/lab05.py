"""Lab 05: losses that must pass, in several styles, and losses that must be refused by name."""

TF = "import tensorflow as tf\n"


def plain(expression, before=""):
    return f"{TF}{before}def replica_loss(losses, global_batch_size):\n    return {expression}\n"


def weighted(expression, before=""):
    head = "def weighted_loss(losses, weights, global_batch_size):\n"
    return f"{TF}{before}{head}    return {expression}\n"


def penalised(expression):
    head = "def penalised_loss(losses, penalty, global_batch_size, replicas):\n"
    return f"{TF}{head}    return {expression}\n"


def uneven(expression):
    head = "def uneven_loss(losses, batch_examples, global_batch_size):\n"
    return f"{TF}{head}    return {expression}\n"


def pixels(expression):
    return f"{TF}def pixel_loss(losses, global_batch_size):\n    return {expression}\n"


LOOP = """
def replica_loss(losses, global_batch_size):
    total = tf.zeros([], losses.dtype)
    for loss in tf.unstack(losses):
        total += loss
    return total / global_batch_size
"""
TRACED = "@tf.function\n"
AVERAGE = "tf.nn.compute_average_loss"
RIGHT = {
    "plain": [
        plain("tf.reduce_sum(losses) / global_batch_size"),
        plain(f"{AVERAGE}(losses, global_batch_size=global_batch_size)"),
        plain("tf.reduce_sum(losses * (1.0 / global_batch_size))", TRACED),
        TF + LOOP,
        "import keras\n" + plain("keras.ops.sum(losses) / float(global_batch_size)"),
    ],
    "weighted": [
        weighted("tf.reduce_sum(losses * weights) / global_batch_size"),
        weighted(f"{AVERAGE}(losses, weights, global_batch_size)"),
        weighted("tf.tensordot(losses, weights, 1) / global_batch_size", TRACED),
        weighted("sum(a * b for a, b in zip(losses, weights)) / global_batch_size"),
    ],
    "penalised": [
        penalised("tf.reduce_sum(losses) / global_batch_size + penalty / replicas"),
        penalised(
            f"{AVERAGE}(losses, global_batch_size=global_batch_size)"
            " + tf.nn.scale_regularization_loss(penalty)"
        ),
        penalised("tf.add_n([tf.reduce_sum(losses / global_batch_size), penalty * 1 / replicas])"),
    ],
    "uneven": [
        uneven("tf.reduce_sum(losses) / batch_examples"),
        uneven(f"{AVERAGE}(losses, global_batch_size=batch_examples)"),
        uneven("tf.reduce_sum(losses / tf.cast(batch_examples, losses.dtype))"),
        uneven("tf.reduce_sum(losses) / batch_examples if len(losses) else tf.constant(0.0)"),
        uneven("sum(losses) / batch_examples"),
    ],
    "pixels": [
        pixels("tf.reduce_sum(tf.reduce_mean(losses, axis=[1, 2])) / global_batch_size"),
        pixels(f"{AVERAGE}(tf.reduce_mean(losses, [1, 2]), global_batch_size=global_batch_size)"),
        pixels("tf.reduce_mean(losses) * len(losses) / global_batch_size"),
        pixels("tf.reduce_sum(losses) / (global_batch_size * losses.shape[1] * losses.shape[2])"),
        "import keras\n"
        + pixels("keras.ops.sum(keras.ops.mean(losses, (1, 2))) / global_batch_size"),
    ],
}
WRONG = {
    "plain": {
        "own-mean": plain("tf.reduce_mean(losses)"),
        "only-summed": plain("tf.reduce_sum(losses)"),
        "divided-twice": plain(
            "tf.reduce_sum(losses) / global_batch_size"
            " / tf.distribute.get_strategy().num_replicas_in_sync"
        ),
        "only-replicas": plain("tf.reduce_sum(losses) / 4"),
    },
    "weighted": {
        "own-mean": weighted("tf.reduce_mean(losses * weights)"),
        "weights-ignored": weighted("tf.reduce_sum(losses) / global_batch_size"),
        "own-weights": weighted("tf.reduce_sum(losses * weights) / tf.reduce_sum(weights)"),
        "mean-weight": weighted(
            "tf.reduce_sum(losses) / global_batch_size * tf.reduce_mean(weights)"
        ),
    },
    "penalised": {
        "on-every-replica": penalised("tf.reduce_sum(losses) / global_batch_size + penalty"),
        "penalty-by-batch": penalised("(tf.reduce_sum(losses) + penalty) / global_batch_size"),
        "all-by-replicas": penalised(
            "(tf.reduce_sum(losses) / global_batch_size + penalty) / replicas"
        ),
        "penalty-forgotten": penalised("tf.reduce_sum(losses) / global_batch_size"),
        "own-mean": penalised("tf.reduce_mean(losses) + penalty / replicas"),
    },
    "uneven": {
        "own-mean": uneven("tf.reduce_mean(losses)"),
        "full-batch": uneven("tf.reduce_sum(losses) / global_batch_size"),
        "own-times-replicas": uneven(f"{AVERAGE}(losses)"),
        "mean-of-nothing": uneven("tf.reduce_mean(losses) * len(losses) / batch_examples"),
    },
    "pixels": {
        "pixels-summed": pixels("tf.reduce_sum(losses) / global_batch_size"),
        "own-mean": pixels("tf.reduce_mean(losses)"),
        "one-axis": pixels("tf.reduce_sum(tf.reduce_mean(losses, axis=1)) / global_batch_size"),
        "only-pixels": pixels("tf.reduce_sum(tf.reduce_mean(losses, axis=[1, 2]))"),
    },
}
