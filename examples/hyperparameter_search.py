"""Search for a learning rate, a warm-up and a batch size on workers that share one folder.

    pip install optuna
    python hyperparameter_search.py --folder search1 --trials 12

Start the second line as often as you like, on every machine that sees the folder, or let
`distlab run --independent --workers 4 --max-restarts 3 hyperparameter_search.py ...` start it
four times. Optuna's journal is a file, so no server has to run. A worker that is killed loses one
trial, and another worker tries it again. Trials that fall behind are stopped early (successive
halving). At the end search1/best.json holds the best settings, ready for
`distlab train --config search1/best.json`, and search1/trials.png shows all of them.

Why Optuna: one package, no server, and a lock that dies with its worker takes ten lines. In
KerasTuner a chief hands out the trials over gRPC: when it was killed, its worker hung. TensorFlow
2.21, Keras 3.15, Optuna 5.
"""

import argparse
import fcntl
import json
import os
import time
import warnings
from pathlib import Path

import keras
import numpy as np
import optuna
import tensorflow as tf
from keras.optimizers.schedules import PolynomialDecay
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

DATA = Path(__file__).parents[1] / "utils/data/bundled/fashion_mnist.npz"
MAX_ATTEMPTS = 3  # at one trial, before it counts as failed
LIMITS = {"trials": (1, 10**6), "epochs": (1, 10**6), "max_examples": (10, 10**9)}
LIMITS["seed"] = (0, 10**6)


class DyingLock:
    """A lock that goes with its process. Optuna's own waits 30 s for one that was killed."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("a")

    def acquire(self) -> bool:
        fcntl.flock(self.file, fcntl.LOCK_EX)
        return True

    def release(self) -> None:
        fcntl.flock(self.file, fcntl.LOCK_UN)

    def is_free(self) -> bool:
        """Take the lock if nobody has it, and return whether that worked."""
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def load_images(limit: int | None):
    """Return training and validation images and labels. The test images are for the very end."""
    data = np.load(os.environ.get("FASHION_MNIST", DATA))
    images = data["x_train"][:limit, ..., np.newaxis].astype("float32") / 255
    cut = len(images) * 9 // 10
    labels = data["y_train"][:limit]
    return (images[:cut], labels[:cut]), (images[cut:], labels[cut:])


def build_model(learning_rate: float, warm_up_steps: int) -> keras.Model:
    layers = [keras.Input((28, 28, 1))]
    for width in (32, 64):
        layers += [keras.layers.Conv2D(width, 3, activation="relu"), keras.layers.MaxPooling2D()]
    layers += [keras.layers.Flatten(), keras.layers.Dense(64, activation="relu")]
    model = keras.Sequential([*layers, keras.layers.Dense(10)])
    if warm_up_steps:  # a straight line from a tenth of the rate; after it, the rate stays
        learning_rate = PolynomialDecay(learning_rate / 10, warm_up_steps, learning_rate)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(learning_rate, momentum=0.9), loss, metrics=["accuracy"])
    return model


def try_out(trial: optuna.Trial, data, options) -> float:
    """Train with the trial's settings, and return the accuracy on the validation images."""
    train, validation = data
    keras.utils.set_random_seed(options.seed)
    model = build_model(trial.params["learning_rate"], trial.params["warm_up_steps"])
    size = trial.params["global_batch_size"]
    for epoch in range(1, options.epochs + 1):
        model.fit(*train, batch_size=size, verbose=0)
        accuracy = model.evaluate(*validation, batch_size=256, verbose=0)[1]
        trial.report(accuracy, epoch)
        if epoch < options.epochs and trial.should_prune():
            raise optuna.TrialPruned
    return accuracy


def open_study(options) -> optuna.Study:
    """Open the folder's study, or make it. Call it with the folder's lock held."""
    lock, path = DyingLock(options.folder / "journal.lock"), options.folder / "journal.log"
    lock.acquire()
    if path.exists():  # a full disk or a power cut leaves half a line, and breaks the next one
        os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
    lock.release()
    pruner = optuna.pruners.SuccessiveHalvingPruner(reduction_factor=2)
    about = {"study_name": "search", "direction": "maximize", "load_if_exists": True}
    try:
        storage = optuna.storages.JournalStorage(JournalFileBackend(str(path), lock_obj=lock))
        study = optuna.create_study(storage=storage, pruner=pruner, **about)
    except ValueError as error:
        raise SystemExit(f"--folder {options.folder}: journal.log is damaged ({error})") from None
    settings = {name: getattr(options, name) for name in ("seed", "epochs", "max_examples")}
    if study.user_attrs.get("settings", settings) != settings:
        words = f"holds a search with {study.user_attrs['settings']}, got {settings}"
        raise SystemExit(f"--folder {options.folder} {words}. Name another folder")
    study.set_user_attr("settings", settings)
    return study


def take_trial(study: optuna.Study, options):
    """Return the next trial and its lock, None if there is none. Call with the lock held."""
    running = study.get_trials(deepcopy=False, states=[TrialState.RUNNING])
    freed = {trial.number for trial in running if find_lock(trial, options).is_free()}
    # A worker says how its trial ended, then lets go of the lock: so the states are read again.
    running = study.get_trials(deepcopy=False, states=[TrialState.RUNNING]) if freed else []
    for trial in (trial for trial in running if trial.number in freed):
        about = {"attempt": trial.user_attrs.get("attempt", 1) + 1, "again": trial.number}
        queued = {other.user_attrs.get("again") for other in study.get_trials(deepcopy=False)}
        if about["attempt"] <= MAX_ATTEMPTS and trial.number not in queued:
            settings = trial.system_attrs.get("fixed_params", {}) | trial.params
            study.enqueue_trial(settings, user_attrs=about)
        study.tell(trial.number, state=TrialState.FAIL)  # it died, and we may die in between
    trials = study.get_trials(deepcopy=False)
    waiting = any(trial.state == TrialState.WAITING for trial in trials)
    firsts = sum("again" not in trial.user_attrs for trial in trials)
    if not waiting and firsts >= options.trials:
        return None
    # A new seed for each trial: workers with the same seed would all draw the same settings.
    seed = 1000 * options.seed + len(trials)
    study.sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
    trial = study.ask()
    lock = find_lock(trial, options)
    lock.acquire()
    trial.suggest_float("learning_rate", 1e-3, 1.0, log=True)
    trial.suggest_categorical("global_batch_size", [32, 64, 128, 256])
    trial.suggest_categorical("warm_up_steps", [0, 50, 200])
    return trial, lock


def find_lock(trial, options) -> DyingLock:
    return DyingLock(options.folder / f"trial-{trial.number}.lock")


def work(study: optuna.Study, folder_lock: DyingLock, data, options) -> None:
    """Try settings until there are enough trials and nobody runs one any more."""
    while True:
        folder_lock.acquire()
        taken = take_trial(study, options)
        folder_lock.release()
        if taken is None:
            if not study.get_trials(deepcopy=False, states=[TrialState.RUNNING]):
                return
            time.sleep(0.2)  # others still run theirs: wait, in case one of them dies
            continue
        trial, lock = taken
        try:
            accuracy = try_out(trial, data, options)
            study.tell(trial, accuracy)
            end = f"accuracy {accuracy:.3f}"
        except optuna.TrialPruned:
            study.tell(trial, state=TrialState.PRUNED)
            end = "stopped early"
        lock.file.close()
        print(f"trial {trial.number}: {json.dumps(trial.params)}: {end}", flush=True)


def draw(study: optuna.Study, path: Path) -> None:
    """Draw the accuracy of all trials that ran to their end, over each setting."""
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    axes = optuna.visualization.matplotlib.plot_slice(study)
    axes[0].figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="folder, seen by all workers")
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--epochs", type=int, default=4, help="of a trial that is never stopped")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-examples", type=int, help="use the first N images")
    options = parser.parse_args()
    for name, (least, most) in LIMITS.items():
        value = getattr(options, name)
        if value is not None and not least <= value <= most:
            words = f"must be {least} to {most:,}, got {value}"
            raise SystemExit(f"--{name.replace('_', '-')} {words}")

    tf.config.experimental.enable_op_determinism()  # the same seed, the same trials
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    data = load_images(options.max_examples)
    try:
        options.folder.mkdir(parents=True, exist_ok=True)
        folder_lock = DyingLock(options.folder / "folder.lock")
        folder_lock.acquire()
        study = open_study(options)
        folder_lock.release()
        work(study, folder_lock, data, options)
        best = {"model": "cnn", "optimizer": "momentum", "epochs": options.epochs}
        best |= study.best_trial.params
        aside = options.folder / f"best.{os.getpid()}"  # each worker writes the same
        aside.write_text(json.dumps(best, indent=1))
        aside.rename(options.folder / "best.json")
        draw(study, options.folder / "trials.png")
    except OSError as error:  # a full disk, a folder that cannot be written
        raise SystemExit(f"--folder {options.folder}: {error.strerror}") from None
    print(json.dumps({"accuracy": study.best_value, **best}))


if __name__ == "__main__":
    main()
