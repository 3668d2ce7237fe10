"""Lab 15, capstone: a plan, a measure, a program on real workers, and the trained model."""

import hashlib
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from distlab.exercises.exercise import Exercise, each
from distlab.exercises.refusing import refuse, require_value
from distlab.labs import ANSWERS
from distlab.labs.lab15.program_runs import LearnerRun, run_program
from distlab.labs.lab15.saved_models import ask_model, pack_model, read_weights, unpack_model
from distlab.labs.lab15.shards import draw_shards, give_shards, write_shards
from utils.data import load
from utils.data.scenes import SceneSplit, draw_scene

ABSENT = (*ANSWERS, "utils.data.masks")

__all__ = ["make_scenes", "pack_model", "predict_masks", "write_shards"]
STEPS, CLASSES = 20, 11
OUTLINES, GARMENTS = 0.93, 0.40  # required of a trained model on fresh scenes
TRIED_SCENES, TRIED_SEED = 448, 77  # of the runs that are tried: 14 steps an epoch
MAX_DISTANCE = 1e-4  # relative, of the weights of two runs: other data make it 1e-3 and more
LEARNED_LOSS = 2.0  # after twenty steps; guessing all classes alike gives log(11) = 2.4
KILLS = 3  # attempts at killing a worker before a quick program has ended
PROBES = 32  # scenes to predict with the model of a short run
NOT_WRITTEN = b'raise NotImplementedError("this exercise is not written yet")'
EMPTY_SHARE = 0.3  # of the gradients' bytes: less than that is talk, not gradients


def make_scenes(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return fresh scenes of held-out garments: images float32 [n, 64, 64, 1] in 0 to 1, and
    masks uint8 [n, 64, 64].
    """
    garments = load("fashion_mnist").test
    drawn = [draw_scene(garments, seed, number) for number in range(count)]
    images, masks = (np.stack(part) for part in zip(*drawn))
    return images[..., None].astype(np.float32) / 255, masks


# ---- exercise 1: the plan

UNET_PARAMETERS, BANDWIDTH = 31_030_658, 15e9  # of the published runs; bytes/s
PLAN = Exercise(
    lab="lab15",
    name="plan",
    function="predict_step",
    examples=((62.5, 1, 8), (59.58, 8, 8), (100.0, 2, 16)),  # the last is invented
    mistakes={
        "no-network": "eight GPUs also have to add up 31 million gradients in every step",
        "one-byte": "these are as many bytes as parameters: a float32 gradient takes four",
        "whole-vectors": "in a ring each message is one eighth of the gradients, not all of them, "
        "and a float32 is four bytes, which are 32 bits",
        "one-image": "a step of one GPU handles a whole batch, not one image",
        "batch-divided": "each GPU keeps its own batch here: eight times as many images per step",
        "bits": "these are eight times the bytes: 15 GB/s are bytes, and a float32 has four",
        "hidden": "here nothing overlaps: a step is the step of one GPU, and then the all-reduce",
        "steps": "these are steps/s of all GPUs: each step has a whole batch on each of them",
        "one-way": "half of the network's time is missing: a ring goes round twice",
        "one-batch": "images/s of all GPUs together: each of them does a batch in a step",
    },
    hint="the step of one GPU, then a ring all-reduce of float32 gradients",
    tolerance=0.2,
    by_hand=("utils.simulate", "utils.calibrate"),
)

# ---- exercise 2: how good a mask is

IOU = Exercise(
    lab="lab15",
    name="iou",
    function="measure_iou",
    examples=(
        (
            [[[0, 1, 1], [0, 1, 2]], [[3, 3, 0], [0, 0, 0]]],
            [[[0, 1, 2], [1, 1, 2]], [[0, 3, 3], [0, 0, 1]]],
        ),
        ([[[0, 4], [4, 4]]], [[[0, 4], [0, 4]]]),
        ([[[10, 10, 5], [0, 7, 0]]], [[[10, 0, 7], [9, 7, 0]]]),
    ),
    mistakes={
        "accuracy": "that is the share of correct pixels: the many background ones hide the rest",
        "background-counted": "the mean is over the garments: background, class 0, isn't one",
        "dice": "that is the Dice score: the IoU divides by the pixels where either says it",
        "recall": "pixels that only the prediction has belong in the divisor too",
        "precision": "pixels that only the mask has belong in the divisor too",
        "twice": "the divisor counts the pixels where both say it twice: take mask | prediction",
        "absent-as-one": "a class that is in neither mask isn't found perfectly: leave it out",
        "summed": "the second number is the *mean* of the garments' IoU, not their sum",
        "together": "first each garment's IoU, then their mean: this is one fraction of all pixels",
        "by-pixels": "every class counts the same: don't weight them by their pixels",
        "per-scene": "count over all scenes together, then divide once",
        "absent-as-zero": "a class that is in neither mask says nothing: leave it out of the mean",
        "classes-of-masks": "a class that only the prediction has counts too, with an IoU of 0",
        "classes-of-both": "a class that only one of the two has counts too, with an IoU of 0",
        "classes-to-nine": "the classes of garments are 1 to 10: the last one is missing",
        "classes-in-foreground": "for the foreground any garment will do, the wrong one too",
    },
    hint="for each class: pixels where both say it, over pixels where either says it",
    by_hand=("utils.data.masks",),
    shows_case=False,
)

# ---- exercise 3: the program


def try_program(program: str, kind: str, seed: int) -> dict[str, Any]:
    """Run a program of twenty steps as `kind` says: "alone", "together" or "killed".

    "killed" begins on two workers, loses one and is finished by one. Returns what was found, in
    words, numbers and truths.
    """
    path = Path(program).absolute()
    if path.is_dir():
        raise refuse(f"{path.name} is a folder. Remove it, then run the cell that writes the file.")
    if not path.is_file():
        raise refuse(f"{path.name} isn't there yet. Run the cell that writes it.")
    text = path.read_bytes()
    if any(line.strip() == NOT_WRITTEN for line in text.splitlines()):
        raise NotImplementedError(f"{path.name} is not written yet")
    runs = _get_runs(hashlib.sha256(text).hexdigest(), str(path))
    return {"alone": _look_alone, "together": _look_together, "killed": _look_killed}[kind](
        runs, seed
    )


@cache
def _get_runs(digest: str, program: str) -> "ProgramRuns":
    return ProgramRuns(Path(program))


class ProgramRuns:
    """The runs of one program, each made when it is first asked for; files go with Python."""

    def __init__(self, program: Path) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="capstone-")
        self.program = Path(shutil.copy(program, self._folder.name))
        self._runs: dict[tuple[str, int], LearnerRun] = {}
        split = SceneSplit(load("fashion_mnist").train, TRIED_SCENES, TRIED_SEED)
        draw_shards(self._name("data"), split)

    def _name(self, *parts: object) -> Path:
        return Path(self._folder.name, "-".join(map(str, parts)))

    def get(self, kind: str, seed: int) -> LearnerRun:
        """Return the run of `kind` with `seed`."""
        if (kind, seed) not in self._runs:
            self._runs[kind, seed] = self._run(kind, seed)
        return self._runs[kind, seed]

    def _run(self, kind: str, seed: int) -> LearnerRun:
        workers = 2 if kind in ("together", "killed") else 1
        data = [give_shards(self._name("data"), worker, workers) for worker in range(workers)]
        if kind == "killed":
            step_bytes = self.get("together", seed).traffic / STEPS
            for number in range(KILLS):
                out = self._name(kind, seed, number)
                run = run_program(self.program, data, out, seed, STEPS, step_bytes)
                if run.killed:
                    break
            return run
        out = self.get("killed", seed).folder if kind == "resumed" else self._name(kind, seed)
        return run_program(self.program, data, out, seed, STEPS)


def _look_alone(runs: ProgramRuns, seed: int) -> dict[str, Any]:
    run, other = runs.get("alone", seed), runs.get("alone", seed + 1)
    weights = _read_weights(run)
    images, masks = make_scenes(seed, PROBES)
    logits = ask_model(run.folder / "saved_model", images)
    loss = _measure_loss(logits, masks)
    said = run.report.get("loss", float("nan"))
    return {
        "steps in report.json": run.report.get("steps"),
        "checkpoints written": list(run.saved),
        "model": _name_model(run.folder / "saved_model", logits),
        "checksum is of the weights": _is_sum(run.report.get("weights_checksum"), weights),
        "it has learned": bool(loss < LEARNED_LOSS and have_moved(weights)),
        "loss is the mean over pixels": bool(0.5 < said / loss < 2),
        "another seed, other weights": not _are_equal(_read_weights(other), weights),
    }


def _name_model(folder: Path, logits: np.ndarray) -> str:
    """Return "gives logits", or what a model does that the lab forbids."""
    if b"moving_mean" in (folder / "saved_model.pb").read_bytes():
        return "normalizes over a batch"
    odds = bool(logits.min() >= 0 and np.allclose(logits.sum(axis=-1), 1, atol=1e-2))
    return "gives probabilities" if odds else "gives logits"


def _look_together(runs: ProgramRuns, seed: int) -> dict[str, Any]:
    alone, both = runs.get("alone", seed), runs.get("together", seed)
    weights = _read_weights(alone)
    gradients = STEPS * sum(array.nbytes for array in weights)
    return {
        "steps in report.json": both.report.get("steps"),
        "gradients crossed": bool(both.traffic > 2 * EMPTY_SHARE * gradients),
        "weights as with one worker": _are_equal(_read_weights(both), weights),
        "loss next to one worker's": _compare_losses(both, alone),
    }


def _look_killed(runs: ProgramRuns, seed: int) -> dict[str, Any]:
    both, killed = runs.get("together", seed), runs.get("killed", seed)
    if not killed.killed:
        raise refuse(
            "Worker 1 was never killed. There must be a checkpoint before the last step, and the "
            "workers must exchange their gradients after it."
        )
    resumed = runs.get("resumed", seed)
    return {
        "steps in report.json": resumed.report.get("steps"),
        "checkpoints written before the kill": list(killed.saved),
        "checkpoints written after it": list(resumed.saved),
        "weights as without a kill": _are_equal(_read_weights(resumed), _read_weights(both)),
        "loss next to a run's without a kill": _compare_losses(resumed, both),
    }


def _compare_losses(run: LearnerRun, other: LearnerRun) -> str:
    """Return "the same", "twice" or "another", of the losses in two reports."""
    one, two = (each.report.get("loss", float("nan")) for each in (run, other))
    ratio = one / two if two else float("nan")
    return "the same" if abs(ratio - 1) < 1e-3 else "twice" if 1.8 < ratio < 2.2 else "another"


def _read_weights(run: LearnerRun) -> list[np.ndarray]:
    for name in ("report.json", "saved_model/saved_model.pb"):
        if not (run.folder / name).is_file():
            raise refuse(f"{name} must be in --output after the program has ended. Write it there.")
    return read_weights(run.folder / "saved_model")


def _is_sum(told: Any, weights: list[np.ndarray]) -> bool:
    total = sum(float(np.abs(array, dtype=np.float64).sum()) for array in weights)
    return isinstance(told, int | float) and abs(told - total) <= 1e-4 * total


def _are_equal(some: list[np.ndarray], others: list[np.ndarray]) -> bool:
    return bool(some) and measure_distance(some, others) <= MAX_DISTANCE


def measure_distance(some: list[np.ndarray], others: list[np.ndarray]) -> float:
    """Return how far the weights of two models are apart, as a share of their length.

    A SavedModel doesn't say which array belongs where: each goes with the nearest of its shape.
    """
    if sorted(a.shape for a in some) != sorted(a.shape for a in others):
        return float("inf")
    apart = 0.0
    for one in others:
        apart += min(float(np.square(a - one).sum()) for a in some if a.shape == one.shape)
    return float(np.sqrt(apart / sum(float(np.square(a).sum()) for a in others)))


def have_moved(weights: list[np.ndarray]) -> bool:
    """Return whether some bias has moved: all start as constants, one for background and others.

    A last bias that begins where most pixels are background has a small loss without training.
    """
    vectors = [array for array in weights if array.ndim == 1 and array.size > 2]
    return not vectors or any(len(np.unique(array)) > 2 for array in vectors)


def _measure_loss(logits: np.ndarray, masks: np.ndarray) -> float:
    """Return the mean cross-entropy of a pixel, of logits or, if they add up to 1, of odds."""
    logits = logits.astype(np.float64)
    if logits.min() >= 0 and np.allclose(logits.sum(axis=-1), 1, atol=1e-2):
        logits = np.log(logits + 1e-9)
    total = np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1)) + logits.max(-1)
    right = np.take_along_axis(logits, masks[..., None].astype(np.int64), axis=-1)[..., 0]
    return float((total - right).mean())


PROGRAM = Exercise(
    lab="lab15",
    name="program",
    function="capstone.py",
    evidence="outside",
    examples=(("alone", 2029), ("together", 2029), ("killed", 2029)),
    mistakes={
        "nothing-learned": "after twenty steps it does no better than guessing: are the gradients "
        "applied, and are the weights of that model exported?",
        "loss-of-pixels": "report the mean over pixels: a sum over 64 x 64 pixels, or over the "
        "batch, is thousands of times larger",
        "other-checksum": "weights_checksum is the sum of the absolute values of all weights that "
        "are in the SavedModel, biases too",
        "each-alone": "no gradients crossed between the two workers: each trained alone. The "
        "strategy is made from TF_CONFIG, before anything else",
        "other-examples": "two workers end with other weights than one. Every step takes 8 scenes "
        "of each of the four shards, no matter which worker holds them, and adds up the gradients "
        "of all 32; seed and step decide everything else",
        "own-mean": "the loss isn't the same as with one worker: divide by the global batch, 32, "
        "on every replica, and add the parts up",
        "other-steps": "a checkpoint is written after every 10 steps, and at no other time, with "
        "the number of steps in its name",
        "batch-norm": "the model has BatchNormalization, which takes its means over each worker's "
        "own part: two workers and one can't agree then",
        "probabilities": "the model gives probabilities: export logits, without a softmax",
        "seed-ignored": "another --seed gave the same weights: it decides the order of the "
        "scenes, and the first weights",
        "began-anew": "after the kill it took the first ten steps again: restore the newest "
        "checkpoint before the loop, no matter which worker wrote it and how many there were",
        "position-lost": "it resumed from a checkpoint and ended with other weights: the optimizer "
        "and the place in the data belong to the state too",
        "counted-anew": "it took twenty more steps: --steps counts all attempts together",
        "mean-of-steps": "the weights agree and the loss doesn't: report the loss of the last "
        "step's batch, not a mean over the steps of one attempt",
    },
    hint="run it by hand as the lab shows, and look at what it wrote",
    run=each(try_program),
    success="capstone.py: right so far",
)

# ---- exercise 4: the submitted model


def try_model(trained_model: Any, kind: str, seed: int, count: int) -> np.ndarray:
    """Return the masks uint8 [count, 64, 64] that the SavedModel gives for fresh scenes.

    When a class is graded, `trained_model` is the name of the submitted file.
    """
    name = trained_model() if callable(trained_model) else trained_model
    path = Path(str(require_value(name, "trained_model", "the file's name"))).absolute()
    digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
    return _ask_for_masks(digest, str(path), seed, count)


@cache
def _ask_for_masks(digest: str, path: str, seed: int, count: int) -> np.ndarray:
    with tempfile.TemporaryDirectory() as folder:
        unpack_model(path, Path(folder))
        return ask_model(Path(folder), make_scenes(seed, count)[0], masks=True)


def predict_masks(
    model_file: str, seed: int, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return fresh scenes, their masks, and a SavedModel's masks, each uint8 [n, 64, 64]."""
    images, masks = make_scenes(seed, count)
    return (
        np.round(255 * images[..., 0]).astype(np.uint8),
        masks,
        try_model(model_file, "classes", seed, count),
    )


def read_masks(masks: Any, kind: str, seed: int, count: int) -> dict[str, Any]:
    """Return how good masks are, for the part `kind` of the exercise: "outlines" or "classes"."""
    right = make_scenes(seed, count)[1]
    given = np.asarray(masks)
    if given.shape != right.shape or given.dtype.kind not in "iu" or given.max() >= CLASSES:
        return {"masks": "none that fit the scenes"}
    from utils.data.masks import count_pixels, score_masks

    score = score_masks(count_pixels(right, given))
    found = {"outlines": score.foreground, "classes": score.garments}[kind]
    least = {"outlines": OUTLINES, "classes": GARMENTS}[kind]
    classes = len(np.setdiff1d(given, 0))
    return {
        "what": kind,
        "reached": "enough" if found >= least else "too little",
        "classes of garments": "none" if classes == 0 else "one" if classes == 1 else "several",
        "IoU": found,
    }


def _contrast_scores(got: Any, right: Any) -> str:
    if not isinstance(got, dict) or "IoU" not in got:
        return f"gave {got}, should give a mask of 64 x 64 classes for each scene"
    what, least = {
        "outlines": ("foreground IoU", OUTLINES),
        "classes": ("mean IoU of the garments", GARMENTS),
    }[got["what"]]
    return f"reaches a {what} of {got['IoU']:.3f} on fresh scenes, {least} is asked"


MODEL = Exercise(
    lab="lab15",
    name="model",
    function="trained_model",
    evidence="result",
    examples=(("outlines", 2030, 150), ("classes", 2030, 150)),
    mistakes={
        "nothing-found": "it finds no garment at all: most pixels are background, and a model that "
        "has hardly been trained calls all of them background",
        "one-class": "it knows one class of garment only: are there eleven outputs for each pixel, "
        "and does the mask hold all of 0 to 10?",
    },
    hint="train for more epochs: the loss should still be falling after the first one",
    run=each(try_model),
    read=read_masks,
    contrast=_contrast_scores,
    success="the SavedModel finds garments and tells their classes",
)
