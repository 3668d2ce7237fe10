"""Train a few steps under each strategy, loop and Keras, and say how it ended.

A test support program, run by test_strategies.py: it imports TensorFlow once, forks
a process (or a small cluster) for every cell of `utils.strategies.SUPPORT`, and
prints one JSON line per cell: strategy, loop, keras, works, error. Forking after
the import and before TensorFlow's first operation is safe on Linux while the process
has one thread.
"""

import json
import os
import signal
import sys
import tempfile
import time
import traceback

os.environ["OPENBLAS_NUM_THREADS"] = "1"
from utils.environment import quiet_tensorflow  # noqa: E402

with quiet_tensorflow():
    import keras
    import tensorflow as tf
    import tf_keras
from utils.strategies import STRATEGIES, SUPPORT, make_strategy  # noqa: E402
from utils.tf_config import pick_free_ports  # noqa: E402

CELL_SECONDS = 90
BATCH, EXAMPLES = 8, 32


def make_model(kind):
    layers = kind.layers
    return kind.Sequential([kind.Input((4,)), layers.Dense(8, activation="relu"), layers.Dense(2)])


def make_data():
    features = tf.reshape(tf.range(EXAMPLES * 4, dtype=tf.float32), [EXAMPLES, 4]) / 100
    labels = tf.range(EXAMPLES, dtype=tf.int64) % 2
    data = tf.data.Dataset.from_tensor_slices((features, labels)).batch(BATCH)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return data.with_options(options)


def run_fit(strategy, kind):
    with strategy.scope():
        model = make_model(kind)
        loss = kind.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer=kind.optimizers.SGD(0.1), loss=loss)
    before = [w.copy() for w in model.get_weights()]
    data = make_data()
    if isinstance(strategy, tf.distribute.ParameterServerStrategy) and kind is tf_keras:
        data = kind.utils.experimental.DatasetCreator(lambda context: make_data().repeat())
    steps = EXAMPLES // BATCH
    history = model.fit(data, epochs=1, steps_per_epoch=steps, verbose=0)
    assert history.history["loss"][0] > 0
    assert any((a != b).any() for a, b in zip(before, model.get_weights())), "nothing was learnt"


def run_custom(strategy, kind):
    with strategy.scope():
        model = make_model(kind)
        optimizer = kind.optimizers.SGD(0.1)
        optimizer.build(model.trainable_variables)
    before = [w.copy() for w in model.get_weights()]

    def step(features, labels):
        with tf.GradientTape() as tape:
            logits = model(features, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=BATCH)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    @tf.function
    def train_step(iterator):
        strategy.run(step, args=next(iterator))

    if isinstance(strategy, tf.distribute.ParameterServerStrategy):
        coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        data = coordinator.create_per_worker_dataset(lambda: make_data().repeat())
        iterator = iter(data)
        for _ in range(EXAMPLES // BATCH):
            coordinator.schedule(train_step, args=(iterator,))
        coordinator.join()
    else:
        iterator = iter(strategy.experimental_distribute_dataset(make_data()))
        for _ in range(EXAMPLES // BATCH):
            train_step(iterator)
    assert any((a != b).any() for a, b in zip(before, model.get_weights())), "nothing was learnt"


def run_cell(cell):
    kind = keras if cell.keras == "keras 3" else tf_keras
    {"fit": run_fit, "custom": run_custom}[cell.loop](make_strategy(cell.strategy), kind)


def serve():
    """Be a worker or a parameter server until killed."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    server = tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol="grpc",
    )
    server.join()


def cluster_of(name):
    """Return the tasks of the cell's cluster, none on one machine; the first one reports."""
    record = STRATEGIES[name]
    counts = {"chief": 1, "worker": 1, "ps": 1} if record.is_coordinated else {"worker": 2}
    counts = counts if record.place == "cluster" else {}
    ports = iter(pick_free_ports(sum(counts.values())))
    spec = {job: [f"127.0.0.1:{next(ports)}" for _ in range(n)] for job, n in counts.items()}
    tasks = [{"type": job, "index": i} for job, n in counts.items() for i in range(n)]
    return [json.dumps({"cluster": spec, "task": task}) for task in tasks] or [""]


def start(cell, configuration, report):
    """Fork one task; it writes how it ended to the file `report`."""
    process = os.fork()
    if process:
        return process
    os.setsid()
    signal.alarm(CELL_SECONDS)
    status = 1
    try:
        log = os.open(report + ".log", os.O_CREAT | os.O_WRONLY)
        os.dup2(log, 1), os.dup2(log, 2)
        if configuration:
            os.environ["TF_CONFIG"] = configuration
        task = json.loads(configuration or "{}").get("task", {})
        if STRATEGIES[cell.strategy].is_coordinated and task["type"] != "chief":
            serve()
        run_cell(cell)
        outcome, status = "", 0
    except BaseException:
        outcome = traceback.format_exc()
    finally:
        with open(report + ".part", "w") as file:
            file.write(outcome)
        os.rename(report + ".part", report)
        os._exit(status)


def probe(cell, folder):
    """Run one cell with its whole cluster and return how the first task ended."""
    name = f"{cell.strategy}-{cell.loop}-{cell.keras}".replace(" ", "")
    configurations = cluster_of(cell.strategy)
    reports = [os.path.join(folder, f"{name}-{i}") for i in range(len(configurations))]
    tasks = [start(cell, *pair) for pair in zip(configurations, reports)]
    ends = time.time() + CELL_SECONDS
    while time.time() < ends and not os.path.exists(reports[0]):
        time.sleep(0.05)
    time.sleep(0.2 if len(tasks) > 1 else 0)
    for task in tasks:
        try:
            os.killpg(task, signal.SIGKILL)
        except ProcessLookupError:
            pass
        os.waitpid(task, 0)
    if not os.path.exists(reports[0]):
        return "no end within the time limit"
    with open(reports[0]) as file:
        return file.read()


def main():
    threads = len(os.listdir("/proc/self/task"))
    assert threads == 1, f"{threads} threads: forking would not be safe"
    wanted = set(sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        for cell in SUPPORT:
            if cell.works is None or (wanted and cell.strategy not in wanted):
                continue
            error = probe(cell, folder)
            record = {"strategy": cell.strategy, "loop": cell.loop, "keras": cell.keras}
            print(json.dumps({**record, "works": not error, "error": error}), flush=True)


if __name__ == "__main__":
    main()
