"""Many small jobs: what workers and claims cost, against a plain loop and the library alone.

Prediction: rows per second of a loop that calls `model.predict` once for each shard, and of
examples/batch_prediction.py with one and with two workers, for a small network and for the
capstone's U-Net. Starts and loading are left out. One process already uses all cores for large
operations, so compare the two columns of workers before you expect much of a second one here.

Search: what a trial costs beside its training in examples/hyperparameter_search.py (the folder's
lock, the journal, the search for dead workers), and in Optuna alone, in memory.

On two cores that other programs shared (2026-11-27), one and two workers predicted 3.2 and 3.8
times as many rows per second as the loop for the small network, and 1.5 and 1.9 times as many for
the U-Net. A trial of 11.9 s cost 17 ms beside its training, 1 ms in Optuna alone: 0.13 % more.
"""

import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np

EXAMPLES = Path(__file__).parents[1] / "examples"
SHARDS, SECONDS = 8, 600
SIZES = {"small": ((28, 28, 1), 6000), "U-Net": ((64, 64, 1), 96)}  # a row, rows in a shard
TRIALS = 40
PLAIN = """
import json, sys, time
import keras, numpy as np, tensorflow as tf
from pathlib import Path
folder, shape = Path(sys.argv[1]), json.loads(sys.argv[2])
model = keras.saving.load_model(folder / "model.keras", compile=False)
begun, rows = time.perf_counter(), 0
for shard in sorted((folder / "shards").iterdir()):
    records = list(tf.data.TFRecordDataset(str(shard)).as_numpy_iterator())
    pixels = np.frombuffer(b"".join(records), np.uint8).reshape(-1, *shape) / np.float32(255)
    rows += len(model.predict(pixels, batch_size=64, verbose=0).argmax(-1))
print(json.dumps({"rows": rows, "seconds": time.perf_counter() - begun}))
"""


def run(rounds: int) -> None:
    """Print both tables."""
    rounds = max(1, rounds // 3)
    print(f"\nPrediction, rows per second (medians of {rounds} alternated rounds)")
    print(f"{'':<8}{'model.predict':>14}{'1 worker':>10}{'2 workers':>11}{'ratios':>14}")
    for name in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            print_prediction(name, Path(folder), rounds)
    print_search()


def load_example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def print_prediction(name: str, folder: Path, rounds: int) -> None:
    shape, rows = SIZES[name]
    make_data(name, folder, shape, rows)
    found = {"plain": [], 1: [], 2: []}
    for number in range(rounds):
        found["plain"].append(time_plain(folder, shape))
        for workers in (1, 2):
            found[workers].append(time_workers(folder, workers, f"{number}-{workers}"))
    plain, one, two = (statistics.median(rates) for rates in found.values())
    ratios = f"{one / plain:.2f}, {two / plain:.2f}"
    print(f"{name:<8}{plain:>14.0f}{one:>10.0f}{two:>11.0f}{ratios:>14}", flush=True)


def make_data(name: str, folder: Path, shape: tuple[int, ...], rows: int) -> None:
    import tensorflow as tf

    program = load_example("capstone" if name == "U-Net" else "mirrored_fit")
    model = program.build_model()
    model.save(folder / "model.keras")
    model.export(folder / "model", verbose=False)
    (folder / "shards").mkdir()
    rng = np.random.default_rng(0)
    for shard in range(SHARDS):
        with tf.io.TFRecordWriter(str(folder / f"shards/s{shard}.tfrecord")) as writer:
            for row in rng.integers(0, 256, (rows, *shape), np.uint8):
                writer.write(row.tobytes())


def time_plain(folder: Path, shape: tuple[int, ...]) -> float:
    words = [sys.executable, "-c", PLAIN, str(folder), json.dumps(shape)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=True)
    report = json.loads(done.stdout.splitlines()[-1])
    return report["rows"] / report["seconds"]


def time_workers(folder: Path, workers: int, name: str) -> float:
    """Return the rows per second of all workers: the slowest one's time counts."""
    command = [sys.executable, "-m", "distlab", "run", "--independent", "--workers", str(workers)]
    options = {"model": "model", "shards": "shards", "output": f"out-{name}"}
    words = [str(EXAMPLES / "batch_prediction.py")]
    words += [word for key, value in options.items() for word in (f"--{key}", str(folder / value))]
    done = subprocess.run(
        [*command, *words], capture_output=True, text=True, timeout=SECONDS, check=True, cwd=folder
    )
    lines = [line.partition("] ")[2] for line in done.stdout.splitlines()]
    reports = [json.loads(line) for line in lines if line.startswith('{"rows"')]
    assert len(reports) == workers
    seconds = [r["rows_here"] / r["rows_per_second_here"] for r in reports if r["rows_here"]]
    return reports[0]["rows"] / max(seconds)


def print_search() -> None:
    if importlib.util.find_spec("optuna") is None:
        print("\nSearch: needs Optuna (pip install -e '.[search]')")
        return
    import optuna

    program = load_example("hyperparameter_search")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    data = program.load_images(6400)
    program.tf.config.experimental.enable_op_determinism()
    settings = {"learning_rate": 0.02, "global_batch_size": 64, "warm_up_steps": 50}
    trial = optuna.trial.FixedTrial(settings)
    suggest(trial)
    begun = time.perf_counter()
    program.try_out(trial, data, Namespace(seed=0, epochs=4))
    training = time.perf_counter() - begun
    ours, alone = time_shared(program), time_alone(optuna)
    print(f"\nSearch: a trial trains for {training:.1f} s (6,400 images, 4 epochs)")
    print(
        f"beside it, of {TRIALS} trials: {1000 * ours:.1f} ms each in the shared folder, "
        f"{1000 * alone:.1f} ms in Optuna alone: {(ours - alone) / training:.2%} more; "
        f"{60 / (training + ours):.1f} trials a minute"
    )


def time_shared(program: Any) -> float:
    """Return the seconds of a trial that trains nothing, in a shared folder."""
    program.try_out = lambda trial, data, options: trial.params["learning_rate"]
    program.print = lambda *words, **options: None
    with tempfile.TemporaryDirectory() as folder:
        options = Namespace(folder=Path(folder), trials=TRIALS, seed=0, epochs=1, max_examples=None)
        lock, begun = program.DyingLock(options.folder / "folder.lock"), time.perf_counter()
        program.work(program.open_study(options), lock, None, options)
        return (time.perf_counter() - begun) / TRIALS


def suggest(trial: Any) -> float:
    """Ask for the settings that the example asks for; return the rate."""
    trial.suggest_categorical("global_batch_size", [32, 64, 128, 256])
    trial.suggest_categorical("warm_up_steps", [0, 50, 200])
    return trial.suggest_float("learning_rate", 1e-3, 1.0, log=True)


def time_alone(optuna: Any) -> float:
    def objective(trial: Any) -> float:
        return suggest(trial)

    study, begun = optuna.create_study(direction="maximize"), time.perf_counter()
    study.optimize(objective, n_trials=TRIALS)
    return (time.perf_counter() - begun) / TRIALS
