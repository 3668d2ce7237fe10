"""Make each mistake of starting a cluster with real processes on loopback; print the real logs.

A test support program, run by test_cluster_diagnose.py: it imports TensorFlow once,
forks a process for every task of every mistake, lets the mistake happen, kills what
is left, and prints one JSON line per mistake: `mistake`, and `tasks`, each with
`task`, `tf_config`, `log`, `process` (its id) and `status` (None: it was still waiting
when it was killed).
Forking after the import and before TensorFlow's first operation is safe on Linux while
the process has one thread. A waiting TensorFlow worker ignores SIGINT and SIGTERM:
SIGKILL of its group ends it.
"""

import ctypes
import json
import os
import resource
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ.pop("TF_CONFIG", None)
import keras  # noqa: E402
import tensorflow as tf  # noqa: E402

from utils.tf_config import pick_free_ports  # noqa: E402

tf.get_logger().setLevel("INFO")

LIMIT_SECONDS = 120.0
WATCH_SECONDS = 4.0  # how long a task that waits in silence is watched
IS_SILENT = os.environ.get("TF_CPP_MIN_LOG_LEVEL") == "3"
SERVES, CONNECTS = "Started server with target", "is now connecting to cluster"
AT_ONCE = 6
PR_SET_PDEATHSIG = 1  # prctl(2)


@dataclass
class Task:
    """One process: its TF_CONFIG, what it runs, and whether the mistake lets it end."""

    name: str
    tf_config: str
    run: Callable[[], None]
    ends: bool = True
    pid: int = 0  # 0 once it has ended
    process: int = 0
    status: int | None = None
    log: Path = Path()

    def read_log(self) -> str:
        return self.log.read_text(errors="replace") if self.log.is_file() else ""


@dataclass
class Mistake:
    """Tasks that are started at once.

    It is over when the tasks that end have ended and each text of `until` stands in a log.
    Tasks that are watched go on for `watch_seconds` from when each has one of the texts in
    its log. It is over after LIMIT_SECONDS in any case. `kill`: (number of a task, text), the task
    that is killed when the text stands in a log. `held`: sockets to close at the end.
    """

    name: str
    tasks: list[Task]
    until: tuple[str, ...] = ()
    watch_seconds: float = 0.0
    kill: tuple[int, str] | None = None
    held: list[socket.socket] = field(default_factory=list)
    begun: float = 0.0
    seen: float | None = None  # when it was all there


# What a task runs. Each is what a reader would have written.


def train_custom(steps: int = 3) -> None:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    all_reduce(strategy, steps)


def all_reduce(strategy: tf.distribute.Strategy, steps: int) -> None:
    def give():
        return tf.distribute.get_replica_context().all_reduce("sum", tf.ones([2]))

    step = tf.function(lambda: strategy.run(give))
    for number in range(steps):
        step()
        print(f"step {number} of {strategy.num_replicas_in_sync} replicas", flush=True)


def train_until_killed() -> None:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    while True:
        all_reduce(strategy, 1)
        time.sleep(0.05)


def configure_after_the_strategy() -> None:
    configuration = os.environ.pop("TF_CONFIG")
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    os.environ["TF_CONFIG"] = configuration
    all_reduce(strategy, 1)


def compute_before_the_strategy() -> None:
    tf.reduce_sum(tf.ones([2]))
    train_custom()


def make_model() -> keras.Model:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    return model


def fit_keras_3() -> None:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = make_model()
    model.fit(tf.data.Dataset.from_tensors((tf.ones([8, 2]), tf.ones([8, 1]))).repeat(2))


def coordinate() -> tf.distribute.ParameterServerStrategy:
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    return tf.distribute.ParameterServerStrategy(resolver)


def coordinate_fit() -> None:
    strategy = coordinate()
    with strategy.scope():
        model = make_model()
    data = tf.data.Dataset.from_tensors((tf.ones([8, 2]), tf.ones([8, 1])))
    model.fit(data.repeat(), steps_per_epoch=2)


def coordinate_until_servers_die() -> None:
    strategy = coordinate()
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        total = tf.Variable(0.0)

    @tf.function
    def add():
        total.assign_add(1.0)

    while True:
        coordinator.schedule(add)
        coordinator.join()
        print("joined", flush=True)
        time.sleep(0.05)


def serve() -> None:
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id
    )
    server.join()


def reduce_other_shapes() -> None:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]

    def give():
        return tf.distribute.get_replica_context().all_reduce("sum", tf.ones([2 + index]))

    tf.function(lambda: strategy.run(give))()


AGAIN = "INFO:tensorflow:Collective all_reduce tensors"


def make_a_strategy_again() -> None:
    """What a program of several trainings does; worker 0 comes to the second one last."""
    train_custom(1)
    if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 0:
        log = os.readlink("/proc/self/fd/1").removesuffix("0")
        peers = [Path(f"{log}{number}") for number in (1, 2)]
        while any(peer.read_text(errors="replace").count(AGAIN) < 2 for peer in peers):
            time.sleep(0.05)
        time.sleep(2)  # they are about to wait for this one
    train_custom(1)


def use_two_strategies() -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 4)
    for replicas in (2, 4):
        all_reduce(tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)]), 1)


def call_with_other_shape() -> None:
    model = make_model()
    tf.function(lambda x: model(x))(tf.ones([2, 9]))


def gather_out_of_range() -> None:
    tf.function(lambda index: tf.gather(tf.ones([3]), index))(tf.constant(7))


def read_missing_records() -> None:
    list(tf.data.TFRecordDataset("/nowhere/train.tfrecord"))


def compute_nan() -> None:
    tf.function(lambda x: tf.debugging.check_numerics(tf.math.log(x), "loss"))(tf.constant(-1.0))


def raise_in_one_of_two() -> None:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    all_reduce(strategy, 1)
    if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 1:
        {}["label_column"]
    all_reduce(strategy, 1000)


# The mistakes.


def make_cluster(host: str = "127.0.0.1", **counts: int) -> dict[str, list[str]]:
    ports = iter(pick_free_ports(sum(counts.values())))
    return {job: [f"{host}:{next(ports)}" for _ in range(n)] for job, n in counts.items()}


def make_task(cluster, job: str, index, run=train_custom, ends: bool = True, name="") -> Task:
    text = json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})
    return Task(name or f"{job}:{index}", text, run, ends)


def missing_peer() -> Mistake:
    task = make_task(make_cluster(worker=2), "worker", 0, ends=False)
    return Mistake("missing-peer", [task], ("Example stragglers:\n/job",))


def missing_leader() -> Mistake:
    task = make_task(make_cluster(worker=2), "worker", 1, ends=False)
    return Mistake("missing-leader", [task], (SERVES,), WATCH_SECONDS)


def missing_server() -> Mistake:
    task = make_task(make_cluster(chief=1, worker=1, ps=1), "chief", 0, coordinate, ends=False)
    return Mistake("missing-server", [task], (CONNECTS,), WATCH_SECONDS)


def unknown_host() -> Mistake:
    cluster = make_cluster(worker=2)
    cluster["worker"][0] = "worker-0.invalid:2222"
    task = make_task(cluster, "worker", 1, ends=False)
    return Mistake("unknown-host", [task], (SERVES,), WATCH_SECONDS)


def taken_port() -> Mistake:
    taken = socket.socket()
    taken.bind(("0.0.0.0", 0))
    taken.listen()
    cluster = make_cluster(worker=2)
    cluster["worker"][0] = f"127.0.0.1:{taken.getsockname()[1]}"
    return Mistake("taken-port", [make_task(cluster, "worker", 0)], held=[taken])


def wrong_index() -> Mistake:
    return Mistake("wrong-index", [make_task(make_cluster(worker=2), "worker", 2)])


def duplicate_index() -> Mistake:
    """Two processes of one machine are both worker 0; the port goes to one of them."""
    cluster = make_cluster(worker=2)
    tasks = [make_task(cluster, "worker", 0, ends=False, name=f"copy {n}") for n in (1, 2)]
    said = ("UnknownError: Could not start gRPC server", "Example stragglers:\n/job")
    return Mistake("duplicate-index", tasks, said)


def duplicate_index_elsewhere() -> Mistake:
    """Two processes are both worker 1, as on two machines: each has its own port."""
    ours, theirs = make_cluster(worker=2), make_cluster(worker=2)
    theirs["worker"][0] = ours["worker"][0]
    tasks = [make_task(ours, "worker", 0, train_until_killed, ends=False)]
    tasks += [
        make_task(c, "worker", 1, train_until_killed, ends=False, name=f"copy {n}")
        for n, c in enumerate([ours, theirs], 1)
    ]
    return Mistake("duplicate-index-elsewhere", tasks, ("with a different incarnation",))


def mismatched_sizes() -> Mistake:
    large = make_cluster(worker=3)
    small = {"worker": large["worker"][:2]}
    tasks = [make_task(small, "worker", 0, ends=False), make_task(large, "worker", 1, ends=False)]
    return Mistake("mismatched-sizes", tasks, ("InternalError: ",))


def mismatched_shapes() -> Mistake:
    return make_pair("mismatched-shapes", reduce_other_shapes, ("InvalidArgumentError: ",), False)


def late_tf_config() -> Mistake:
    return make_pair("late-tf-config", configure_after_the_strategy)


def late_strategy() -> Mistake:
    return make_pair("late-strategy", compute_before_the_strategy)


def second_strategy() -> Mistake:
    return Mistake("second-strategy", [Task("local:0", "", use_two_strategies)])


def renewed_server() -> Mistake:
    cluster = make_cluster(worker=3)
    tasks = [make_task(cluster, "worker", i, make_a_strategy_again, i > 0) for i in range(3)]
    return Mistake("renewed-server", tasks)


def dead_peer() -> Mistake:
    mistake = make_pair("dead-peer", train_until_killed)
    mistake.kill = (1, "step 0 of 2")
    return mistake


def dead_parameter_server() -> Mistake:
    cluster = make_cluster(chief=1, worker=1, ps=1)
    tasks = [make_task(cluster, "chief", 0, coordinate_until_servers_die)]
    tasks += [make_task(cluster, job, 0, serve, ends=False) for job in ("worker", "ps")]
    return Mistake("dead-parameter-server", tasks, kill=(2, "joined"))


def ps_strategy_without_ps() -> Mistake:
    task = make_task(make_cluster(chief=1, worker=1), "chief", 0, coordinate)
    return Mistake("ps-strategy-without-ps", [task])


def multi_worker_as_ps() -> Mistake:
    task = make_task(make_cluster(chief=1, worker=1, ps=1), "ps", 0)
    return Mistake("multi-worker-as-ps", [task])


def multi_worker_with_ps() -> Mistake:
    cluster = make_cluster(worker=2, ps=1)
    tasks = [make_task(cluster, "worker", i, ends=False) for i in (0, 1)]
    return Mistake("multi-worker-with-ps", tasks, (SERVES,), WATCH_SECONDS)


def evaluator_in_cluster() -> Mistake:
    cluster = make_cluster(chief=1, worker=1, ps=1, evaluator=1)
    tasks = [make_task(cluster, job, 0, serve, ends=False) for job in ("worker", "ps")]
    tasks += [make_task(cluster, "chief", 0, coordinate, ends=False)]
    return Mistake("evaluator-in-cluster", tasks, (SERVES, CONNECTS), WATCH_SECONDS)


def keras_fit_multi_worker() -> Mistake:
    return make_pair("keras-fit-multi-worker", fit_keras_3, ("PerReplica'>) to a Tensor",), False)


def keras_fit_parameter_server() -> Mistake:
    cluster = make_cluster(chief=1, worker=1, ps=1)
    tasks = [make_task(cluster, "chief", 0, coordinate_fit)]
    tasks += [make_task(cluster, job, 0, serve, ends=False) for job in ("worker", "ps")]
    return Mistake("keras-fit-parameter-server", tasks)


def python_repr() -> Mistake:
    text = str({"cluster": make_cluster(worker=2), "task": {"type": "worker", "index": 0}})
    return Mistake("python-repr", [Task("worker:0", text, train_custom)])


def own_parsing() -> Mistake:
    text = str({"cluster": make_cluster(worker=2), "task": {"type": "worker", "index": 0}})
    return Mistake(
        "own-parsing", [Task("worker:0", text, lambda: json.loads(os.environ["TF_CONFIG"]))]
    )


def raised() -> Mistake:
    return make_pair("raised", raise_in_one_of_two)


def open_too_many_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    print([open(os.devnull) for _ in range(100)])


def make_single(name: str, run: Callable[[], None]) -> Callable[[], Mistake]:
    return lambda: Mistake(name, [Task("worker:0", "", run)])


SINGLE = tuple(
    make_single(name, run)
    for name, run in {
        "other-shape": call_with_other_shape,
        "graph-error": gather_out_of_range,
        "missing-file": read_missing_records,
        "not-finite": compute_nan,
        "disk-full": lambda: tf.io.write_file("/dev/full", "x" * 100_000),
        "corrupt-file": lambda: list(tf.data.TFRecordDataset(__file__)),
        "open-files": open_too_many_files,
        "missing-library": lambda: ctypes.CDLL("libcudart.so.99"),
    }.items()
)


def misspelled_job() -> Mistake:
    return Mistake("misspelled-job", [make_task(make_cluster(workers=2), "workers", 0)])


def type_not_in_cluster() -> Mistake:
    return Mistake("type-not-in-cluster", [make_task(make_cluster(worker=2), "chief", 0)])


def no_task() -> Mistake:
    text = json.dumps({"cluster": make_cluster(worker=2)})
    return Mistake("no-task", [Task("unknown", text, train_custom)])


def make_pair(name: str, run: Callable[[], None], until=(), both_end: bool = True) -> Mistake:
    """Two workers that run the same; unless `both_end`, over when `until` is in the logs."""
    cluster = make_cluster(worker=2)
    tasks = [make_task(cluster, "worker", i, run, ends=both_end) for i in (0, 1)]
    return Mistake(name, tasks, until)


# Those that take longest come first.
MISTAKES = (
    dead_peer,
    raised,
    duplicate_index_elsewhere,
    dead_parameter_server,
    mismatched_sizes,
    missing_leader,
    missing_server,
    unknown_host,
    multi_worker_with_ps,
    evaluator_in_cluster,
    keras_fit_multi_worker,
    keras_fit_parameter_server,
    missing_peer,
    taken_port,
    wrong_index,
    renewed_server,
    duplicate_index,
    mismatched_shapes,
    late_tf_config,
    late_strategy,
    second_strategy,
    ps_strategy_without_ps,
    multi_worker_as_ps,
    python_repr,
    misspelled_job,
    type_not_in_cluster,
    no_task,
    own_parsing,
    *SINGLE,
)


# Running them.


def start(task: Task) -> None:
    parent = os.getpid()
    task.pid = task.process = os.fork()
    if task.pid:
        return
    status = 1
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
        file = os.open(task.log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.dup2(file, 1), os.dup2(file, 2)
        if task.tf_config:
            os.environ["TF_CONFIG"] = task.tf_config
        task.run()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(status)


def poll(task: Task) -> bool:
    """Return whether the task has ended, by itself or by a kill."""
    if task.status is None and task.pid:
        pid, status = os.waitpid(task.pid, os.WNOHANG)
        if pid:
            task.pid, task.status = 0, os.waitstatus_to_exitcode(status)
    return task.status is not None


def end(mistake: Mistake) -> None:
    """Kill what is left of it: the status of a task that had not ended stays None."""
    for task in mistake.tasks:
        if not poll(task) and task.pid:
            os.kill(task.pid, signal.SIGKILL)  # a forked worker starts no process of its own
            os.waitpid(task.pid, 0)
            task.pid = 0
    for one in mistake.held:
        one.close()


def is_over(mistake: Mistake) -> bool:
    now = time.monotonic()
    if now - mistake.begun > LIMIT_SECONDS:
        return True
    logs = [task.read_log() for task in mistake.tasks]
    if mistake.kill and any(mistake.kill[1] in log for log in logs):
        victim = mistake.tasks[mistake.kill[0]]
        if not poll(victim):
            os.kill(victim.pid, signal.SIGKILL)
        mistake.kill = None
    if mistake.seen is None and has_happened(mistake, logs):
        mistake.seen = now
    return mistake.seen is not None and now - mistake.seen >= mistake.watch_seconds


def has_happened(mistake: Mistake, logs: list[str]) -> bool:
    if mistake.watch_seconds:
        return IS_SILENT or all(any(text in log for text in mistake.until) for log in logs)
    waits = mistake.kill is not None or not (mistake.until or any(t.ends for t in mistake.tasks))
    ended = [poll(task) for task in mistake.tasks if task.ends]
    return not waits and all(ended) and all(any(t in log for log in logs) for t in mistake.until)


def begin(make: Callable[[], Mistake], folder: Path) -> Mistake:
    mistake = make()
    mistake.begun = time.monotonic()
    for number, task in enumerate(mistake.tasks):
        task.log = folder / f"{mistake.name}-{number}"
        start(task)
    return mistake


def run_all(chosen: list[Callable[[], Mistake]], folder: Path) -> None:
    """Let the mistakes happen, AT_ONCE at a time, print their records, leave no process."""
    left, running = list(chosen), []
    try:
        while left or running:
            while left and len(running) < AT_ONCE:
                running.append(begin(left.pop(0), folder))
            time.sleep(0.05)
            for mistake in [m for m in running if is_over(m)]:
                running.remove(mistake)
                end(mistake)
                print(json.dumps(make_record(mistake)), flush=True)
    finally:
        for mistake in running:
            end(mistake)


def make_record(mistake: Mistake) -> dict:
    tasks = [
        {
            "task": t.name,
            "tf_config": t.tf_config,
            "status": t.status,
            "process": t.process,
            "log": t.read_log(),
        }
        for t in mistake.tasks
    ]
    seconds = round(time.monotonic() - mistake.begun, 1)
    return {"mistake": mistake.name, "seconds": seconds, "tasks": tasks}


def main() -> None:
    threads = len(os.listdir("/proc/self/task"))
    assert threads == 1, f"{threads} threads: forking would not be safe"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    wanted = set(sys.argv[1:])
    chosen = [make for make in MISTAKES if not wanted or make.__name__ in wanted]
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder  # a killed task leaves AutoGraph's generated files in it
        run_all(chosen, Path(folder))


if __name__ == "__main__":
    main()
