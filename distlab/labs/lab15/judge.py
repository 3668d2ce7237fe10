"""Lab 15, capstone: measured steps, intersections over unions, what runs have in common."""

from typing import Any

import numpy as np

from distlab.exercises.comparing import AnyOf, Anything
from distlab.grading.judging import Judge, LabRules
from distlab.labs.lab15 import exercise as lab15

RULES = LabRules(own_seconds=60, cell_seconds=240, submission_seconds=400, processes=True)


PUBLISHED = {  # (images/s of one GPU, its batch, GPUs): images/s of all
    (62.50, 1, 8): 259.22,
    (46.26, 8, 8): 293.64,  # DGX A100: mixed precision, TF32
    (40.36, 1, 8): 210.18,
    (59.58, 8, 8): 368.88,  # DGX-1 with V100: mixed precision
    (17.91, 8, 8): 137.11,  # the same in float32
}


def expect_plan(rate: float, batch: int, gpus: int, way: str = "right") -> list[float]:
    """Return [seconds of a step, images/s of all GPUs]: as published, from the lab's assumptions
    for runs that weren't measured, or mistaken.
    """
    if way == "right" and (rate, batch, gpus) in PUBLISHED:
        return [gpus * batch / PUBLISHED[rate, batch, gpus], PUBLISHED[rate, batch, gpus]]
    images = {"one-image": 1, "batch-divided": batch / gpus}.get(way, batch)
    moved = 2 * (gpus - 1) * 4 * lab15.UNET_PARAMETERS / lab15.BANDWIDTH
    moved /= 1 if way == "whole-vectors" else gpus
    moved *= {"no-network": 0, "one-byte": 0.25, "one-way": 0.5, "bits": 8}.get(way, 1)
    step = max(images / rate, moved) if way == "hidden" else images / rate + moved
    told = {"one-batch": images, "steps": gpus}.get(way, gpus * images)
    return [step, AnyOf((told / step, gpus * batch / step)) if images != batch else told / step]


def expect_iou(masks: Any, predicted: Any, way: str = "right") -> list[float]:
    """Return [IoU of the foreground, mean IoU of the garments], or mistaken ones."""
    masks, predicted = np.asarray(masks), np.asarray(predicted)
    if way == "per-scene":
        each = [expect_iou(m, p) for m, p in zip(masks, predicted)]
        means = np.nanmean(each, axis=0)  # of one of the two, or of both
        return [AnyOf(pair) for pair in zip(means.tolist(), expect_iou(masks, predicted))]
    classes = np.arange(0 if way == "background-counted" else 1, lab15.CLASSES)
    if way in ("classes-of-masks", "classes-of-both"):
        classes = np.intersect1d(classes, masks)
    if way == "classes-of-both":
        classes = np.intersect1d(classes, predicted)
    classes = classes[classes < 10] if way == "classes-to-nine" else classes
    if way in _OTHERS:
        divide = _OTHERS[way]
        garments = [divide(masks == k, predicted == k) for k in classes]
        return [divide(masks > 0, predicted > 0), float(np.nanmean(garments))]
    found = [_divide(masks == k, predicted == k) for k in classes]
    if way == "by-pixels":
        pixels = [(masks == k).sum() for k in classes]
        return [_divide(masks > 0, predicted > 0), np.average(np.nan_to_num(found), weights=pixels)]
    if way.startswith("absent-as-"):
        found = np.nan_to_num(found, nan=way == "absent-as-one").tolist()
    same = (masks == predicted) & (masks > 0)
    foreground = _divide(masks > 0, predicted > 0)
    if way == "classes-in-foreground":
        foreground = float(same.sum() / ((masks > 0) | (predicted > 0)).sum())
    if way == "accuracy":
        foreground = float((masks == predicted).mean())
    if way == "together":
        either = (masks > 0).sum() + (predicted > 0).sum() - same.sum()
        return [foreground, float(same.sum() / either)]
    unite = np.nansum if way == "summed" else np.nanmean
    return [foreground, float(unite(found))]


def _measure_dice(one: np.ndarray, other: np.ndarray) -> float:
    total = one.sum() + other.sum()
    return float(2 * (one & other).sum() / total) if total else float("nan")


def _measure_recall(one: np.ndarray, other: np.ndarray) -> float:
    if not (one | other).any():
        return float("nan")
    return float((one & other).sum() / max(one.sum(), 1))


_OTHERS = {
    "dice": _measure_dice,
    "twice": lambda one, other: _measure_dice(one, other) / 2,
    "recall": _measure_recall,
    "precision": lambda one, other: _measure_recall(other, one),
}


def _divide(one: np.ndarray, other: np.ndarray) -> float:
    either = (one | other).sum()
    return float((one & other).sum() / either) if either else float("nan")


EITHER, UNLIKE = AnyOf((True, False)), AnyOf(("the same", "another"))
CHANGES: dict[str, dict[str, Any]] = {  # what each mistake changes of what is seen
    "nothing-learned": {
        "it has learned": False,
        "loss is the mean over pixels": EITHER,
        "another seed, other weights": EITHER,
    },
    "loss-of-pixels": {"loss is the mean over pixels": False},
    "other-checksum": {"checksum is of the weights": False},
    "other-steps": {"checkpoints written": Anything()},
    "batch-norm": {"model": "normalizes over a batch"},
    "probabilities": {"model": "gives probabilities"},
    "seed-ignored": {"another seed, other weights": False},
    "each-alone": {"gradients crossed": False},
    "own-mean": {"loss next to one worker's": "twice", "weights as with one worker": EITHER},
    "other-examples": {"weights as with one worker": False, "loss next to one worker's": UNLIKE},
    "began-anew": {"checkpoints written after it": [10, 20]},
    "counted-anew": {"checkpoints written after it": [20, 30]},
    "position-lost": {
        "weights as without a kill": False,
        "loss next to a run's without a kill": UNLIKE,
    },
    "mean-of-steps": {"loss next to a run's without a kill": "another"},
}
STOPPED = ("batch-norm", "probabilities", "each-alone", "began-anew", "counted-anew")  # at once


def expect_program(program_kind: str, seed: int, way: str = "right") -> dict[str, Any]:
    """Return what a right program, or one with a known mistake, is seen to do."""
    steps = "steps in report.json"
    found: dict[str, Any] = {
        "alone": {
            steps: lab15.STEPS,
            "checkpoints written": [10, 20],
            "model": "gives logits",
            "checksum is of the weights": True,
            "it has learned": True,
            "loss is the mean over pixels": True,
            "another seed, other weights": True,
        },
        "together": {
            steps: lab15.STEPS,
            "gradients crossed": True,
            "weights as with one worker": True,
            "loss next to one worker's": "the same",
        },
        "killed": {
            steps: lab15.STEPS,
            "checkpoints written before the kill": [10],
            "checkpoints written after it": [20],
            "weights as without a kill": True,
            "loss next to a run's without a kill": "the same",
        },
    }[program_kind]
    change = CHANGES.get(way, {})
    if not change.keys() <= found.keys():  # a mistake that another kind of program shows
        return found
    return (dict.fromkeys(found, Anything()) if way in STOPPED else found) | change


def expect_model(kind: str, seed: int, count: int, way: str = "right") -> dict[str, Any]:
    """Return what is read of the masks of a trained model, or of one that isn't."""
    reached = "enough" if way == "right" else "too little"
    if way == "one-class" and kind == "outlines":
        reached = AnyOf(("enough", "too little"))
    classes = {"right": "several", "one-class": "one"}.get(way, "none")
    return {"what": kind, "reached": reached, "classes of garments": classes, "IoU": Anything()}


PLAN = Judge(lab15.PLAN, expect_plan)
IOU = Judge(lab15.IOU, expect_iou)
PROGRAM = Judge(lab15.PROGRAM, expect_program)
MODEL = Judge(lab15.MODEL, expect_model)
