# ruff: noqa: E501
"""Lab 04: answers that must pass, in several styles, and answers that must be refused by name."""

TF = "import tensorflow as tf\nimport numpy as np\nimport keras\n"
STEP = (
    TF
    + """
def train_step(model, optimizer, images, labels, global_batch_size):
    with tf.GradientTape() as tape:
        logits = model(images, training=True)
        losses = {losses}
        loss = {loss}
    variables = model.trainable_variables
    gradients = tape.gradient(loss, variables)
    {apply}
    return {result}
"""
)
CROSS_ENTROPY = "tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)"
APPLY = "optimizer.apply_gradients(zip(gradients, variables))"
SUM = "tf.distribute.ReduceOp.SUM"


def step(
    loss="tf.reduce_sum(losses) / global_batch_size",
    apply=APPLY,
    losses=CROSS_ENTROPY,
    result="loss",
):
    return STEP.format(loss=loss, apply=apply, losses=losses, result=result)


def epoch(before, inside, after, add=True):
    reduce = (
        f"strategy.reduce({SUM}, x, axis=None)"
        if add
        else "strategy.experimental_local_results(x)[0]"
    )
    return f"""{TF}
def run_epoch(strategy, dataset, step):
    reduce = lambda x: {reduce}
    {before}
    for share in dataset:
        sums, counts = strategy.run(step, args=(share,))
        s, n = reduce(sums), reduce(counts)
        {inside}
    return {after}
"""


def accuracy(before, inside, after, add=True):
    reduce = (
        f"strategy.reduce({SUM}, x, axis=None)"
        if add
        else "strategy.experimental_local_results(x)[0]"
    )
    return f"""{TF}
def evaluate(strategy, model, dataset):
    reduce = lambda x: {reduce}
    def count(images, labels):
        right = tf.equal(tf.argmax(model(images), 1), labels)
        return tf.reduce_sum(tf.cast(right, tf.int32)), tf.shape(labels)[0]
    {before}
    for images, labels in dataset:
        sums, counts = strategy.run(count, args=(images, labels))
        s, n = int(reduce(sums)), int(reduce(counts))
        {inside}
    return {after}
"""


KERAS_METRIC = (
    TF
    + """
def evaluate(strategy, model, dataset):
    metric = keras.metrics.SparseCategoricalAccuracy()
    for images, labels in dataset:
        local = strategy.experimental_local_results
        for x, y in zip(local(images), local(labels)):
            if len(y):
                metric.update_state(y, model(x))
    return float(metric.result())
"""
)
METRIC_ON_REPLICAS = (
    TF
    + """
def evaluate(strategy, model, dataset):
    with strategy.scope():
        metric = keras.metrics.SparseCategoricalAccuracy()
    for images, labels in dataset:
        strategy.run(lambda x, y: metric.update_state(y, model(x)), args=(images, labels))
    return float(metric.result())
"""
)
GATHERED = (
    TF
    + """
def evaluate(strategy, model, dataset):
    guesses, truth = [], []
    for images, labels in dataset:
        logits = strategy.run(lambda x: model(x, training=False), args=(images,))
        guesses.append(strategy.gather(logits, axis=0).numpy().argmax(1))
        truth.append(strategy.gather(labels, axis=0).numpy())
    return np.mean(np.concatenate(guesses) == np.concatenate(truth))
"""
)
GRAPH_EPOCH = (
    TF
    + """
def run_epoch(strategy, dataset, step):
    @tf.function
    def whole(data):
        total, count = tf.constant(0.0, tf.float64), tf.constant(0, tf.int64)
        for share in data:
            sums, counts = strategy.run(step, args=(share,))
            total += strategy.reduce(tf.distribute.ReduceOp.SUM, sums, axis=None)
            count += strategy.reduce(tf.distribute.ReduceOp.SUM, counts, axis=None)
        return total / tf.cast(count, tf.float64)
    return whole(dataset)
"""
)
LOCAL_EPOCH = (
    TF
    + """
def run_epoch(strategy, dataset, step):
    losses, counts = [], []
    for share in dataset:
        a, b = strategy.run(step, args=(share,))
        losses += [float(x) for x in strategy.experimental_local_results(a)]
        counts += [int(x) for x in strategy.experimental_local_results(b)]
    return sum(losses) / sum(counts)
"""
)


def resume(save="model=model, optimizer=optimizer, epochs=tf.Variable(epochs)",
           load="model=model, optimizer=optimizer, epochs=epochs",
           path="tf.train.latest_checkpoint(folder)", done="int(epochs)"):  # fmt: skip
    return f"""{TF}
def save_state(folder, model, optimizer, epochs):
    checkpoint = tf.train.Checkpoint({save})
    tf.train.CheckpointManager(checkpoint, folder, max_to_keep=None).save(checkpoint_number=epochs)

def load_state(folder, model, optimizer):
    epochs = tf.Variable(0)
    {"tf.train.Checkpoint(" + load + ").restore(" + path + ")" if load else "pass"}
    return {done}
"""


KERAS_FILES = (
    TF
    + """
import json, os
def save_state(folder, model, optimizer, epochs):
    model.save_weights(os.path.join(folder, "state.weights.h5"))
    np.savez(os.path.join(folder, "optimizer.npz"), *[np.asarray(v) for v in optimizer.variables])
    with open(os.path.join(folder, "epoch.json"), "w") as file:
        json.dump({"epochs": epochs}, file)

def load_state(folder, model, optimizer):
    if not os.path.exists(os.path.join(folder, "epoch.json")):
        return 0
    model.load_weights(os.path.join(folder, "state.weights.h5"))
    with np.load(os.path.join(folder, "optimizer.npz")) as saved:
        for variable, name in zip(optimizer.variables, saved.files):
            variable.assign(saved[name])
    with open(os.path.join(folder, "epoch.json")) as file:
        return json.load(file)["epochs"]
"""
)
FROM_NAME = (
    TF
    + """
import re
def save_state(folder, model, optimizer, epochs):
    tf.train.Checkpoint(m=model, o=optimizer).write(f"{folder}/after-{epochs}")

def load_state(folder, model, optimizer):
    found = [int(re.search(r"after-(\\d+)", f).group(1)) for f in tf.io.gfile.glob(folder + "/*.index")]
    if found:
        tf.train.Checkpoint(m=model, o=optimizer).read(f"{folder}/after-{max(found)}")
    return max(found, default=0)
"""
)
COUNTED = ("total, examples = 0.0, 0", "total += float(s); examples += int(n)", "total / examples")
MEANS = ("means = []", "means.append(float(s) / int(n))", "sum(means) / len(means)")
LAST = ("mean = 0", "mean = float(s) / int(n)", "mean")
FULL = (
    "total, batches, size = 0.0, 0, 0",
    "total += float(s); batches += 1; size = max(size, int(n))",
    "total / (batches * size)",
)
RIGHT = {
    "step": [
        step(),
        step(loss="tf.nn.compute_average_loss(losses, global_batch_size=global_batch_size)"),
        step(
            losses="keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)"
        ),
        step(loss="tf.add_n(tf.unstack(losses)) / tf.cast(global_batch_size, losses.dtype)"),
        step(apply="optimizer.apply(gradients, variables)"),
        step(
            losses="keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)(labels, logits)"
        ),
    ],
    "epoch": [epoch(*COUNTED), GRAPH_EPOCH, LOCAL_EPOCH],
    "accuracy": [accuracy(*COUNTED), KERAS_METRIC, METRIC_ON_REPLICAS, GATHERED],
    "resume": [
        resume(),
        KERAS_FILES,
        FROM_NAME,
        resume().replace(
            "max_to_keep=None).save(checkpoint_number=epochs)", "max_to_keep=2).save()"
        ),
    ],
}
WRONG = {
    "step": {
        "own-mean": step(loss="tf.reduce_mean(losses)"),
        "not-applied": step(apply="pass"),
        "uphill": step(
            apply="optimizer.apply_gradients([(-g, v) for g, v in zip(gradients, variables)])"
        ),
        "applied-twice": step(apply=APPLY + "; " + APPLY),
        "unscaled-loss": step(result="tf.reduce_sum(losses)"),
    },
    "epoch": {
        "mean-of-batches": epoch(*MEANS),
        "last-batch": epoch(*LAST),
        "first-replica": epoch(*COUNTED, add=False),
        "full-batches": epoch(*FULL),
    },
    "accuracy": {
        "mean-of-batches": accuracy(*MEANS),
        "last-batch": accuracy(*LAST),
        "first-replica": accuracy(*COUNTED, add=False),
        "full-batches": accuracy(*FULL),
    },
    "resume": {
        "no-optimizer": resume(
            "model=model, epochs=tf.Variable(epochs)", "model=model, epochs=epochs"
        ),
        "epoch-forgotten": resume(
            "model=model, optimizer=optimizer", "model=model, optimizer=optimizer"
        ),
        "oldest": resume(path="folder + '/ckpt-1' if tf.train.latest_checkpoint(folder) else None"),
        "nothing-restored": resume(load=""),
        "empty-folder": KERAS_FILES.replace(
            '    if not os.path.exists(os.path.join(folder, "epoch.json")):\n        return 0\n', ""
        ),
    },
}
