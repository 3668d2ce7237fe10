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


def mean_of(what):
    return f"strategy.reduce('MEAN', {what}, axis=None)"


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


def resume(
    save="model=model, optimizer=optimizer, epochs=tf.Variable(epochs)",
    load="model=model, optimizer=optimizer, epochs=epochs",
    path="tf.train.latest_checkpoint(folder)",
    done="int(epochs)",
):
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


def program(
    divisor="held",
    scope="strategy.scope()",
    function="pass",
    mean="sum(l * n for l, n in seen) / sum(n for _, n in seen)",
    tracked="model=model, optimizer=optimizer, epochs=done",
    restore="manager.restore_or_initialize()",
):
    return f"""{TF}import contextlib, itertools
def train(strategy, make_model, images, labels, batch_size, epochs, folder):
    batches = tf.data.Dataset.from_tensor_slices((images, labels)).batch(batch_size)
    with {scope}:
        model = make_model()
        optimizer = keras.optimizers.SGD(learning_rate=0.5, momentum=0.875)
        optimizer.build(model.trainable_variables)
    done = tf.Variable(0)
    manager = tf.train.CheckpointManager(tf.train.Checkpoint({tracked}), folder, max_to_keep=2)
    {restore}
    def replica(x, y, held):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x, training=True))
            loss = tf.reduce_sum(losses) / tf.cast({divisor}, tf.float64)
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        return tf.reduce_sum(losses)
    {function}
    def step(x, y, held):
        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(replica, args=(x, y, held)), axis=None)
    losses, data = [], iter(strategy.experimental_distribute_dataset(batches.repeat()))
    for epoch in range(int(done), epochs):
        seen = []
        for x, y in itertools.islice(data, int(batches.cardinality())):
            held = sum(len(part) for part in strategy.experimental_local_results(y))
            seen.append((float(step(x, y, tf.constant(held))) / held, held))
        losses.append({mean})
        done.assign(epoch + 1)
        manager.save()
    return model.get_weights()[0], losses
"""


# the lab's own train_step, save_state and load_state stand above an answer
WHOLE_EPOCH = (
    TF
    + """
def train(strategy, make_model, images, labels, batch_size, epochs, folder):
    data = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((images, labels)).batch(batch_size))
    with strategy.scope():
        model, optimizer = make_model(), keras.optimizers.SGD(0.5, 0.875)
        optimizer.build(model.trainable_variables)
    def replica(x, y):
        n = tf.distribute.get_replica_context().all_reduce("sum", tf.cast(tf.size(y), tf.float64))
        return train_step(model, optimizer, x, y, n) * n, tf.size(y)
    @tf.function
    def run_all(data):
        total, count = tf.constant(0.0, tf.float64), tf.constant(0)
        for x, y in data:
            sums, sizes = strategy.run(replica, args=(x, y))
            total += strategy.reduce("SUM", sums, axis=None)
            count += strategy.reduce("SUM", sizes, axis=None)
        return total / tf.cast(count, tf.float64)
    losses = []
    for epoch in range(load_state(folder, model, optimizer), epochs):
        losses.append(float(run_all(data)))
        save_state(folder, model, optimizer, epoch + 1)
    return model.get_weights()[0], losses
"""
)
BY_VALUES = (
    TF
    + """
def train(strategy, make_model, images, labels, batch_size, epochs, folder):
    with strategy.scope():
        model = make_model()
        optimizer = keras.optimizers.SGD(0.5, momentum=0.875)
        optimizer.build(model.trainable_variables)
        total = tf.Variable(tf.zeros([], tf.float64), aggregation=tf.VariableAggregation.SUM, synchronization=tf.VariableSynchronization.ON_READ, trainable=False)
    replicas = strategy.num_replicas_in_sync
    def replica(x, y, held):
        with tf.GradientTape() as tape:
            losses = keras.losses.sparse_categorical_crossentropy(y, model(x), from_logits=True)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=held)
        total.assign_add(tf.reduce_sum(losses))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    step = tf.function(lambda x, y, held: strategy.run(replica, args=(x, y, held)))
    means = []
    for epoch in range(load_state(folder, model, optimizer), epochs):
        total.assign(0.0)
        for first in range(0, len(labels), batch_size):
            x, y = images[first:first + batch_size], labels[first:first + batch_size]
            share = lambda a: strategy.experimental_distribute_values_from_function(lambda c: tf.constant(np.array_split(a, replicas)[c.replica_id_in_sync_group]))
            step(share(x), share(y), len(y))
        means.append(float(total.numpy()) / len(labels))
        save_state(folder, model, optimizer, epoch + 1)
    return [model.weights[0].numpy(), means]
"""
)
METRIC_PROGRAM = (
    program(mean="float(metric.result())")
    .replace(
        "    done = tf.Variable(0)",
        "        metric = keras.metrics.Mean(dtype='float64')\n    done = tf.Variable(0)",
    )
    .replace(
        "        return tf.reduce_sum(losses)\n",
        "        metric.update_state(losses)\n        return tf.reduce_sum(losses)\n",
    )
    .replace("        seen = []\n", "        seen = []\n        metric.reset_state()\n")
)
FILE_PER_EPOCH = (
    program(
        tracked="model=model, optimizer=optimizer",
        restore="import glob; files = glob.glob(folder + '/e-*.index')",
    )
    .replace(
        "    def replica",
        "    state = tf.train.Checkpoint(model=model, optimizer=optimizer)\n    if files:\n        done.assign(len(files)); state.read(f'{folder}/e-{len(files)}')\n    def replica",
        1,
    )
    .replace("manager.save()", "state.write(f'{folder}/e-{epoch + 1}')")
)
IN_MEMORY = (
    TF
    + """
KEPT = {"epochs": 0}
def save_state(folder, model, optimizer, epochs):
    KEPT.update(epochs=epochs, weights=model.get_weights(), state=[v.numpy() for v in optimizer.variables])

def load_state(folder, model, optimizer):
    if KEPT["epochs"]:
        model.set_weights(KEPT["weights"])
        for variable, value in zip(optimizer.variables, KEPT["state"]):
            variable.assign(value)
    return KEPT["epochs"]
"""
)
BY_PATH = (
    TF
    + """
KEPT = {}
def save_state(folder, model, optimizer, epochs):
    KEPT[folder] = epochs, model.get_weights(), [v.numpy() for v in optimizer.variables]

def load_state(folder, model, optimizer):
    if folder not in KEPT:
        return 0
    epochs, weights, state = KEPT[folder]
    model.set_weights(weights)
    for variable, value in zip(optimizer.variables, state):
        variable.assign(value)
    return epochs
"""
)
PICKLED = (
    TF
    + """
import os
def save_state(folder, model, optimizer, epochs):
    slots = {f"slot{k}": v.numpy() for k, v in enumerate(optimizer.variables)}
    weights = {f"weight{k}": w for k, w in enumerate(model.get_weights())}
    with open(os.path.join(folder, "new"), "wb") as file:
        np.savez(file, epochs=epochs, **weights, **slots)
    os.replace(os.path.join(folder, "new"), os.path.join(folder, "state"))

def load_state(folder, model, optimizer):
    try:
        with open(os.path.join(folder, "state"), "rb") as file:
            state = dict(np.load(file))
    except FileNotFoundError:
        return 0
    model.set_weights([state[f"weight{k}"] for k in range(len(model.weights))])
    for k, variable in enumerate(optimizer.variables):
        variable.assign(state[f"slot{k}"])
    return int(state["epochs"])
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
        step(
            losses="tf.reduce_logsumexp(logits, axis=1) - tf.gather(logits, labels, batch_dims=1)"
        ),
        step(
            loss="tf.reduce_mean(losses) * tf.cast(tf.size(losses), losses.dtype) / tf.cast(global_batch_size, losses.dtype)"
        ),
    ],
    "epoch": [
        epoch(*COUNTED),
        GRAPH_EPOCH,
        LOCAL_EPOCH,
        epoch(
            "pairs = []",
            "pairs.append((float(s), int(n)))",
            "sum(s for s, _ in pairs) / sum(n for _, n in pairs)",
        ),
        epoch(
            "mean, examples = 0.0, 0",
            "examples += int(n); mean += (float(s) - int(n) * mean) / examples",
            "mean",
        ),
        epoch(
            "total, examples = tf.zeros([], tf.float64), tf.zeros([], tf.int64)",
            "total, examples = total + s, examples + n",
            "total / tf.cast(examples, tf.float64)",
        ),
        epoch(
            "rows = []",
            "rows.append([s, tf.cast(n, s.dtype)])",
            "(lambda table: table[0] / table[1])(np.sum(np.array(rows), axis=0))",
        ),
        epoch(
            "metric = keras.metrics.Mean(dtype='float64')",
            "metric.update_state(float(s) / int(n), sample_weight=int(n))",
            "metric.result().numpy()",
        ),
    ],
    "accuracy": [
        accuracy(*COUNTED),
        KERAS_METRIC,
        METRIC_ON_REPLICAS,
        GATHERED,
        accuracy("right = seen = 0", "right, seen = right + s, seen + n", "right / seen"),
        accuracy(*COUNTED).replace(
            "tf.argmax(model(images), 1)",
            "tf.cast(tf.math.top_k(model(images), 1).indices[:, 0], labels.dtype)",
        ),
        accuracy("wrong = n_all = 0", "wrong += n - s; n_all += n", "1 - wrong / n_all"),
        TF
        + """
def evaluate(strategy, model, dataset):
    def share(pair):
        hits = keras.metrics.sparse_categorical_accuracy(pair[1], model(pair[0]))
        return tf.reduce_sum(tf.cast(hits, tf.float64)), tf.size(hits, out_type=tf.int64)
    return run_epoch(strategy, dataset, share)
""",
    ],
    "program": [
        program(function="@tf.function"),
        program(),
        WHOLE_EPOCH,
        BY_VALUES,
        METRIC_PROGRAM,
        FILE_PER_EPOCH,
        program(
            restore="if manager.latest_checkpoint: manager.checkpoint.restore(manager.latest_checkpoint)"
        ),
        program(mean="np.average([l for l, _ in seen], weights=[n for _, n in seen])"),
    ],
    "resume": [
        resume(),
        KERAS_FILES,
        FROM_NAME,
        resume().replace(
            "max_to_keep=None).save(checkpoint_number=epochs)", "max_to_keep=2).save()"
        ),
        resume(
            "model=model, o=optimizer, epochs=tf.Variable(epochs, dtype=tf.int64)",
            "model=model, o=optimizer, epochs=epochs",
        ).replace("epochs = tf.Variable(0)", "epochs = tf.Variable(0, dtype=tf.int64)"),
        resume().replace("max_to_keep=None", "max_to_keep=5, checkpoint_name='state'"),
        resume(
            "w=model.trainable_variables, v=optimizer.variables, epochs=tf.Variable(epochs)",
            "w=model.trainable_variables, v=optimizer.variables, epochs=epochs",
        ),
        PICKLED,
    ],
}
WRONG = {
    "step": {
        "own-mean": step(loss="tf.reduce_mean(losses)"),
        "not-applied": step(apply="pass"),
        "one-variable": step().replace(
            "variables = model.trainable_variables", "variables = model.trainable_variables[:1]"
        ),
        "uphill": step(
            apply="optimizer.apply_gradients([(-g, v) for g, v in zip(gradients, variables)])"
        ),
        "applied-twice": step(apply=APPLY + "; " + APPLY),
        "unscaled-loss": step(result="tf.reduce_sum(losses)"),
        "own-mean-returned": step(result="tf.reduce_mean(losses)"),
        "only-summed": step(loss="tf.reduce_sum(losses)"),
        "only-summed (but the returned loss)": step().replace("gradient(loss,", "gradient(losses,"),
        "summed-twice": step(
            apply="gradients = tf.distribute.get_replica_context().all_reduce('sum', gradients); "
            + APPLY
        ),
        "softmax-first": step(
            losses="tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.nn.softmax(logits))"
        ),
    },
    "epoch": {
        "mean-of-batches": epoch(*MEANS),
        "last-batch": epoch(*LAST),
        "first-replica": epoch(*COUNTED, add=False),
        "full-batches": epoch(*FULL),
        "mean-of-shares": epoch(
            "means = []",
            "means += [float(a) / int(b) for a, b in zip(strategy.experimental_local_results(sums), strategy.experimental_local_results(counts)) if int(b)]",
            "sum(means) / len(means)",
        ),
        "losses-averaged": epoch(*COUNTED).replace("reduce(sums)", mean_of("sums")),
        "counts-averaged": epoch(*COUNTED).replace("reduce(counts)", mean_of("counts")),
        "both-averaged": epoch(*COUNTED).replace(SUM, "tf.distribute.ReduceOp.MEAN"),
        "stepped-twice": epoch(*COUNTED).replace(
            "sums, counts = strategy.run(step, args=(share,))",
            "sums, counts = strategy.run(step, args=(share,))[0], strategy.run(step, args=(share,))[1]",
        ),
        "last-missing": epoch(*COUNTED).replace("in dataset:", "in list(dataset)[:-1]:"),
        "not-divided": epoch(*COUNTED[:2], "total"),
        "by-batches": epoch(
            "total, batches = 0.0, 0", "total += float(s); batches += 1", "total / batches"
        ),
        "(counts halved)": epoch(*COUNTED)
        .replace("reduce(counts)", mean_of("counts"))
        .replace("int(n)", "float(n)"),
    },
    "accuracy": {
        "mean-of-batches": accuracy(*MEANS),
        "last-batch": accuracy(*LAST),
        "first-replica": accuracy(*COUNTED, add=False),
        "full-batches": accuracy(*FULL),
        "losses-averaged": accuracy(*COUNTED).replace("int(n)", "2 * int(n)"),
        "shares-averaged": accuracy(
            COUNTED[0],
            f"total += int(n) * float({mean_of('means')}); examples += int(n)",
            COUNTED[2],
        ).replace(
            "        s, n =",
            "        means = strategy.run(lambda s, n: s / n, args=(sums, counts))\n        s, n =",
        ),
        "counted-wrong": accuracy(
            "wrong = n_all = 0", "wrong += n - s; n_all += n", "wrong / n_all"
        ),
        "mean-of-batches (of shares)": accuracy(
            "means = []",
            "means += [int(a) / int(b) for a, b in zip(strategy.experimental_local_results(sums), strategy.experimental_local_results(counts)) if int(b)]",
            "sum(means) / len(means)",
        ),
    },
    "program": {
        "began-again": program(restore="pass"),
        "no-optimizer": program(tracked="model=model, epochs=done"),
        "own-mean": program(divisor="tf.size(losses)"),
        "full-batch": program(divisor="batch_size"),
        "mean-of-batches": program(mean="sum(l for l, _ in seen) / len(seen)"),
        "saved-at-the-end": program().replace("        manager.save()", "    manager.save()"),
        "epochs-more": program().replace(
            "range(int(done), epochs)", "range(int(done), int(done) + epochs)"
        ),
        "rest-dropped": program().replace(
            ".batch(batch_size)", ".batch(batch_size, drop_remainder=True)"
        ),
        "not-distributed": program().replace(
            "images, labels, batch_size, epochs, folder):",
            "images, labels, batch_size, epochs, folder):\n    strategy = tf.distribute.OneDeviceStrategy('CPU:0')",
            1,
        ),
        "(shuffled)": program().replace(
            ".batch(batch_size)", ".shuffle(99, seed=3).batch(batch_size)"
        ),
    },
    "resume": {
        "no-optimizer": resume(
            "model=model, epochs=tf.Variable(epochs)", "model=model, epochs=epochs"
        ),
        "epoch-forgotten": resume(
            "model=model, optimizer=optimizer", "model=model, optimizer=optimizer"
        ),
        "steps": resume(done="int(optimizer.iterations)"),
        "oldest": resume(path="folder + '/ckpt-1' if tf.train.latest_checkpoint(folder) else None"),
        "nothing-restored": resume(load=""),
        "kept-in-memory": IN_MEMORY,
        "nothing-restored (kept in memory by its path)": BY_PATH,
        "empty-not-zero": FROM_NAME.replace("default=0", "default=-1"),
        "empty-folder": KERAS_FILES.replace(
            '    if not os.path.exists(os.path.join(folder, "epoch.json")):\n        return 0\n', ""
        ),
    },
}

REFUSED = {
    "resume": {
        "The folder has been moved since": FROM_NAME.replace(
            '/after-{epochs}")',
            '/after-{epochs}")\n    open(folder + "/path", "w").write(f"{folder}/after-{epochs}")',
        ).replace(
            "def load_state(folder, model, optimizer):",
            "def load_state(folder, model, optimizer):\n    if tf.io.gfile.exists(folder + '/path'):\n"
            "        tf.train.Checkpoint(m=model, o=optimizer).read(open(folder + '/path').read())",
        ),
    },
    "step": {
        "no gradient reached": step(
            apply="optimizer.apply_gradients([(None, v) for v in variables])"
        ),
    },
    "epoch": {
        "one part for each replica": epoch(*COUNTED).replace(
            "reduce(sums), reduce(counts)", "tf.reduce_sum(sums), tf.reduce_sum(counts)"
        ),
    },
    "program": {
        "don't belong to this strategy": program(
            scope="contextlib.nullcontext()", function="@tf.function"
        ),
        "not an array of weights": program().replace(
            "return model.get_weights()[0]", "return model"
        ),
        "must return two things": program().replace(
            "return model.get_weights()[0], losses", "return losses"
        ),
    },
}
