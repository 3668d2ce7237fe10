"""What `gpu_check` runs: each check in a process of its own.

Every check takes the kind of device and how many there are. With kind "CPU" the same code runs on
logical CPU devices: that is how it is tested on a machine without a GPU.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from utils.gpus import VISIBLE, list_gpus, sharing_variables
from utils.measure import format_bytes, time_calls

EXACT = {"model": "mlp", "dtype": "float64", "optimizer": "sgd", "max_examples": 256, "epochs": 1}
CLOSE = 1e-9  # between weights in float64; what is measured between CPUs is 1e-15
FLOAT32_CLOSE = 2e-3
MEBIBYTE = 2**20
TRAIN_SECONDS = 240
Row = tuple[str, ...]


class Skip(Exception):
    """This machine can't show it; the message says why."""


# --- pieces ----------------------------------------------------------------------------------


def choose_option(kind: str) -> str:
    """Return what `devices=` takes for a kind of device."""
    return "gpu" if kind == "GPU" else "cpu"


def list_sizes(count: int) -> list[int]:
    """Return 1, 2, 4, … and `count` itself."""
    return sorted({size for size in (1, 2, 4, 8, 16) if size < count} | {count})


def run_apart(work: str, environment: dict[str, str] | None = None, **settings: Any) -> Any:
    """Run one of `PARTS` in a fresh process and return its result."""
    return start_apart(work, environment, **settings)()


def start_apart(
    work: str, environment: dict[str, str] | None = None, **settings: Any
) -> Callable[[], Any]:
    """Start one of `PARTS` in a fresh process; what is returned waits for its result."""
    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name, "result.json")
    command = [sys.executable, "-m", "benchmarks.gpu_checks", work, json.dumps(settings), str(path)]
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **(environment or {})}
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=quiet)

    def wait() -> Any:
        with folder:
            try:
                errors = child.communicate(timeout=TRAIN_SECONDS)[1]
            finally:
                child.kill()
            lines = errors.decode(errors="replace").strip().splitlines() or ["no error was printed"]
            assert child.returncode == 0, f"{work} {settings}: {lines[-1]}"
            return json.loads(path.read_text())

    return wait


def train_here(settings: dict[str, Any]) -> dict[str, Any]:
    """Train in this process, or in a task; return what a check compares, as plain data."""
    from utils.measure import peak_memory_bytes
    from utils.training import train

    report = train(**settings)
    import tensorflow as tf

    on_gpu = report.devices[0].rpartition(" ")[2].startswith("GPU")
    peak = tf.config.experimental.get_memory_info("GPU:0")["peak"] if on_gpu else None
    return {
        "weights": [weight.tolist() for weight in report.weights],
        "names": report.devices,
        "all_reduce": report.all_reduce,
        "loss": report.loss,
        "rate": report.images_per_second,
        "resumed_from": report.resumed_from,
        "peak_bytes": peak or peak_memory_bytes(),
        "visible": os.environ.get(VISIBLE),
    }


def train_on_cluster(
    workers: int, ps: int, replicas: int | None, settings: dict[str, Any]
) -> list[dict[str, Any]]:
    """Train on tasks of this machine; return what each worker, or the coordinator, says."""
    from utils.cluster import LocalCluster

    with LocalCluster(workers, ps, replicas, devices=settings["devices"]) as cluster:
        found = cluster.run(train_here, settings, echo=False, timeout=TRAIN_SECONDS)
    return [found] if ps else found


def find_difference(one: dict[str, Any], other: dict[str, Any]) -> float:
    """Return the largest difference between two runs' weights."""
    pairs = zip(one["weights"], other["weights"], strict=True)
    return max(float(np.abs(np.subtract(a, b)).max()) for a, b in pairs)


# --- checks ----------------------------------------------------------------------------------


def check_strategies(kind: str, count: int) -> list[Row]:
    """Every strategy on 1, 2, … all devices takes the steps of one CPU."""
    option = choose_option(kind)
    alone = run_apart("train_here", settings={**EXACT, "strategy": "one-device", "devices": "cpu"})
    rows = [("strategy", "devices", "largest difference of weights")]
    runs = [("default", 1), ("one-device", 1)]
    runs += [(name, n) for name in ("mirrored", "central-storage") for n in list_sizes(count)]
    for name, number in runs:
        wanted = {"strategy": name, "replicas": number, "devices": option}
        found = run_apart("train_here", settings={**EXACT, **wanted})
        rows.append(_compare(name, kind, number, found, alone))
    for number in list_sizes(count):
        settings = {**EXACT, "strategy": "multi-worker", "replicas": number, "devices": option}
        found = run_apart("train_on_cluster", workers=1, ps=0, replicas=number, settings=settings)
        rows.append(_compare("multi-worker, one worker", kind, number, found[0], alone))
    settings = {**EXACT, "strategy": "parameter-server", "devices": option}
    (found,) = run_apart("train_on_cluster", workers=1, ps=1, replicas=None, settings=settings)
    assert np.isfinite(found["loss"]).all() and kind in found["names"][0], found["names"]
    rows.append(("parameter-server, one worker", ", ".join(found["names"]), "trains"))
    return rows


def _compare(name: str, kind: str, number: int, found: dict[str, Any], alone: dict) -> Row:
    names, difference = found["names"], find_difference(found, alone)
    assert len(names) == number and all(f"{kind}:" in one for one in names), (name, names)
    assert difference < CLOSE, f"{name} on {names}: weights differ by {difference:.2g}"
    return name, ", ".join(names), f"{difference:.1e}"


def check_two_workers(kind: str, count: int) -> list[Row]:
    """Two workers divide the devices, and train as one process does."""
    if kind == "GPU" and count < 2:
        raise Skip("two workers need two GPUs")
    option = choose_option(kind)
    settings = {**EXACT, "strategy": "multi-worker", "devices": option}
    found = run_apart("train_on_cluster", workers=2, ps=0, replicas=None, settings=settings)
    alone = run_apart("train_here", settings={**EXACT, "strategy": "one-device", "devices": "cpu"})
    difference = max(find_difference(one, alone) for one in found)
    assert difference < CLOSE, difference
    parts = [set(filter(None, one["visible"].split(","))) for one in found]
    assert not parts[0] & parts[1] and (kind == "CPU" or all(parts)), parts
    visible = [one["visible"] or "none" for one in found]
    return [
        ("worker", "CUDA_VISIBLE_DEVICES", "all-reduce", "largest difference"),
        *((f"worker {i}", visible[i], found[i]["all_reduce"], f"{difference:.1e}") for i in (0, 1)),
    ]


def check_all_reduces(kind: str, count: int) -> list[Row]:
    """NCCL, the ring, the hierarchical copy and one device: the same sums, and their times."""
    if count < 2:
        raise Skip("an all-reduce needs two devices")
    ways = ("nccl", "ring", "hierarchical", "one-device")
    sizes = (1, 16, 64) if kind == "GPU" else (1,)
    rows = [("all-reduce", *(f"{size} MiB, ms" for size in sizes))]
    for way in ways[kind == "CPU" :]:
        number = count - count % 2 if way == "hierarchical" else count
        seconds = run_apart("time_all_reduce", way=way, kind=kind, number=number, mebibytes=sizes)
        rows.append((f"{way}, {number} {kind}s", *(f"{1e3 * one:.2f}" for one in seconds)))
    return rows


def time_all_reduce(way: str, kind: str, number: int, mebibytes: list[int]) -> list[float]:
    """Return the median seconds of an all-reduce of each size, after checking its sum."""
    import tensorflow as tf

    from utils.strategies import make_strategy

    strategy = make_strategy("mirrored", number, devices=choose_option(kind), all_reduce=way)
    found = []
    for size in mebibytes:
        length = size * MEBIBYTE // 4

        def reduce(length: int = length) -> Any:
            context = tf.distribute.get_replica_context()
            own = tf.cast(context.replica_id_in_sync_group + 1, "float32")
            return context.all_reduce("sum", tf.fill([length], own))

        run = tf.function(lambda reduce=reduce: strategy.run(reduce))
        sums = strategy.experimental_local_results(run())
        expected = number * (number + 1) / 2
        assert all(float(tf.reduce_min(s)) == float(tf.reduce_max(s)) == expected for s in sums), (
            f"{way} gives {float(sums[0][0])}, not {expected}"
        )

        def call(run: Any = run) -> None:
            for one in strategy.experimental_local_results(run()):
                one[0].numpy()

        found.append(statistics.median(time_calls(call, repeats=9).seconds))
    return found


def check_half_precision(kind: str, count: int) -> list[Row]:
    """float16 skips the step in which one replica overflows, on all of them; bfloat16 takes it."""
    rows = [("dtype", "devices", "skipped steps", "loss scale")]
    for dtype in ("mixed_float16", "mixed_bfloat16"):
        found = run_apart("overflow_once", dtype=dtype, kind=kind, number=count)
        assert found["finite"], f"{dtype}: a weight is not finite"
        assert found["skipped"] == (1 if dtype == "mixed_float16" else None), found
        rows.append((dtype, str(count), str(found["skipped"]), str(found["scale"])))
    return rows


def overflow_once(dtype: str, kind: str, number: int) -> dict[str, Any]:
    """Train six steps of a linear model; in the fourth, the last replica's features are huge."""
    import keras
    import tensorflow as tf

    from utils.training import train

    size, steps = 4 * number, 6
    features = np.random.default_rng(0).random([steps, size, 4], np.float32)
    features[3, -1] = 60_000.0

    def build() -> keras.Model:
        layer = keras.layers.Dense(2, kernel_initializer="ones", dtype=dtype)
        return keras.Sequential([keras.Input((4,)), layer])

    def make_data() -> tf.data.Dataset:
        labels = np.zeros([steps, size, 2], np.float32)
        return tf.data.Dataset.from_tensor_slices((features, labels))

    report = train(
        strategy="mirrored",
        replicas=number,
        devices=choose_option(kind),
        model=build,
        train_data=make_data,
        loss="mse",
        optimizer="sgd",
        learning_rate=1e-6,
        epochs=1,
        global_batch_size=size,
    )
    finite = all(np.isfinite(weight).all() for weight in report.weights)
    return {"finite": finite, "skipped": report.skipped_steps, "scale": report.loss_scale}


def check_jit_compile(kind: str, count: int) -> list[Row]:
    """A step that XLA compiles, on every replica, takes the steps of the graph."""
    difference = run_apart("compare_compiled", kind=kind, number=count)
    assert difference < FLOAT32_CLOSE, difference
    return [("devices", "largest difference of weights"), (f"{count} {kind}s", f"{difference:.1e}")]


def compare_compiled(kind: str, number: int) -> float:
    """Return how far weights differ after five steps with and without `jit_compile`."""
    import tensorflow as tf

    tf.config.experimental.enable_tensor_float_32_execution(False)
    from utils.strategies import make_strategy

    strategy = make_strategy("mirrored", number, devices=choose_option(kind))
    weights = [_train_compiled(strategy, compiled) for compiled in (False, True)]
    return float(np.abs(weights[0] - weights[1]).max())


def _train_compiled(strategy: Any, compiled: bool) -> np.ndarray:
    import tensorflow as tf

    random = np.random.default_rng(0)
    images, labels = random.random([64, 32], np.float32), random.random([64, 8], np.float32)
    with strategy.scope():
        kernel = tf.Variable(
            random.random([32, 8], np.float32), aggregation=tf.VariableAggregation.MEAN
        )

    @tf.function(jit_compile=compiled)
    def find_gradient(value: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(value)
            loss = tf.reduce_mean(tf.square(tf.nn.relu(tf.matmul(images, value)) - labels))
        return tape.gradient(loss, value)

    def step() -> None:
        gradient = find_gradient(kernel.read_value())
        total = tf.distribute.get_replica_context().all_reduce("mean", gradient)
        kernel.assign_sub(0.1 * total)

    run = tf.function(lambda: strategy.run(step))
    for _ in range(5):
        run()
    return kernel.numpy()


def check_shared_device(kind: str, count: int) -> list[Row]:
    """Two processes train on one device at the same time, each taking the memory that it needs."""
    settings = {**EXACT, "strategy": "one-device", "devices": choose_option(kind), "epochs": 4}
    first = list_gpus()[:1] if kind == "GPU" else []
    environment = {**sharing_variables(), VISIBLE: ",".join(first)}
    waits = [start_apart("train_here", environment, settings=settings) for _ in range(2)]
    found = [wait() for wait in waits]
    difference = find_difference(*found)
    assert difference < CLOSE, difference
    rows = [(f"process {i}", format_bytes(one["peak_bytes"])) for i, one in enumerate(found)]
    return [("at once on one device", "peak memory"), *rows]


def check_resume(kind: str, count: int) -> list[Row]:
    """A run that stops on GPUs and resumes on CPUs, or the reverse, ends with the same weights."""
    option = choose_option(kind)
    straight = run_apart("train_here", settings={**EXACT, "strategy": "mirrored", "epochs": 2})
    rows = [("first epoch", "second epoch", "largest difference")]
    for first, second in ((option, "cpu"), ("cpu", option)):
        with tempfile.TemporaryDirectory() as folder:
            common = {**EXACT, "strategy": "mirrored", "checkpoint_dir": folder}
            begun = run_apart("train_here", settings={**common, "devices": first})
            resumed = {**common, "devices": second, "epochs": 2}
            found = run_apart("train_here", settings=resumed)
        difference = find_difference(found, straight)
        assert found["resumed_from"] and difference < CLOSE, difference
        rows.append((", ".join(begun["names"]), ", ".join(found["names"]), f"{difference:.1e}"))
    return rows


def check_float32(kind: str, count: int) -> list[Row]:
    """How far float32 and TF32 on this device are from float32 on the CPU, after one epoch."""
    settings = {**EXACT, "model": "cnn", "dtype": "float32", "strategy": "one-device"}
    cpu = run_apart("train_here", settings={**settings, "devices": "cpu"})
    rows = [("float32 convolutions", "largest difference from the CPU")]
    for words, override in (("TF32 off", "0"), ("as TensorFlow has it", None)):
        environment = {"NVIDIA_TF32_OVERRIDE": override} if override else {}
        on_device = {**settings, "devices": choose_option(kind)}
        found = run_apart("train_here", environment, settings=on_device)
        difference = find_difference(found, cpu)
        assert difference < (FLOAT32_CLOSE if override else 1.0), difference
        rows.append((words, f"{difference:.1e}"))
    return rows


def check_benchmark(kind: str, count: int) -> list[Row]:
    """The rows of `make bench` for training, on these devices."""
    command = [sys.executable, "-m", "benchmarks", "training", "--rounds", "3"]
    hidden = {} if kind == "GPU" else {VISIBLE: ""}
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **hidden}, timeout=TRAIN_SECONDS
    )
    assert done.returncode == 0, done.stderr.strip().splitlines()[-1:]
    return [("`make bench`",), *((f"`{line}`",) for line in done.stdout.splitlines() if line)]


def check_marked_tests(kind: str, count: int) -> list[Row]:
    """All tests that need a GPU."""
    if kind == "CPU":
        raise Skip("they need a GPU")
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "tests", "-p", "no:cacheprovider"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TRAIN_SECONDS)
    last = (done.stdout.strip().splitlines() or ["nothing was printed"])[-3:]
    assert done.returncode == 0, "; ".join(last)
    return [("pytest -m gpu",), *((line,) for line in last)]


CHECKS: dict[str, Callable[[str, int], list[Row]]] = {
    "strategies": check_strategies,
    "two-workers": check_two_workers,
    "all-reduces": check_all_reduces,
    "half-precision": check_half_precision,
    "jit-compile": check_jit_compile,
    "shared-device": check_shared_device,
    "resume": check_resume,
    "float32": check_float32,
    "benchmark": check_benchmark,
    "marked-tests": check_marked_tests,
}
PARTS: dict[str, Callable[..., Any]] = {
    part.__name__: part
    for part in (train_here, train_on_cluster, time_all_reduce, overflow_once, compare_compiled)
}


def main() -> None:
    """Run a part with JSON settings and write its result; or a check, by name, kind and number."""
    name, words, last = sys.argv[1:]
    if name in PARTS:
        Path(last).write_text(json.dumps(PARTS[name](**json.loads(words))))
        return
    begun = time.monotonic()
    try:
        answer = {"state": "passed", "rows": CHECKS[name](words, int(last))}
    except Skip as reason:
        answer = {"state": "not run", "why": str(reason)}
    except Exception as error:
        answer = {"state": "FAILED", "why": f"{type(error).__name__}: {error}"}
    print(json.dumps({**answer, "seconds": time.monotonic() - begun}))


if __name__ == "__main__":
    main()
