"""Lab 11, tf.data: a pipeline measured beside the naive one in the same process, and two sums."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from distlab.exercises.checking import make_check, refuse, require_value
from utils.input_pipeline.parsing import (
    augment,
    augment_batch,
    fingerprint,
    parse,
    parse_batch,
)

__all__ = ["augment", "augment_batch", "parse", "parse_batch"]
EXAMPLES, SHARDS, ROUNDS = 2000, 8, 5
LEAST_RATIO = 3.0  # asked for
MARGIN = 0.9  # what noise may take off: a ratio of 2.7 passes
MOST_EXAMPLES = 4 * EXAMPLES  # of one epoch that are looked at
SHOWN = 16  # examples of each epoch that are looked at pixel by pixel


# ---- exercise 1: a fast pipeline, measured


@cache
def _write_shards(seed: int) -> Any:
    from utils.data import load
    from utils.input_pipeline.shards import write_shards

    folder = tempfile.TemporaryDirectory()
    order = np.random.default_rng(seed).permutation(EXAMPLES)
    train = load("fashion_mnist").train
    split = type(train)(train.images[:EXAMPLES], train.labels[:EXAMPLES])
    return folder, write_shards(split, folder.name, SHARDS, order)  # the folder lives as long


def make_naive(files: Sequence[str], batch_size: int) -> Any:
    """Return the pipeline to beat: one thing after the other, nothing remembered."""
    import tensorflow as tf

    records = tf.data.Dataset.from_tensor_slices(list(files)).flat_map(tf.data.TFRecordDataset)
    return records.map(parse).map(augment).batch(batch_size)


def try_pipeline(make_fast: Callable[..., Any], seed: int, batch_size: int) -> dict[str, Any]:
    """Return what two epochs of `make_fast` hold, and its speed beside the naive pipeline's.

    The two take turns, so that whatever else the machine does hits both; the ratio
    is the median over the rounds after the first, which fills caches. The better of
    clock and processor time counts: by the clock, a busy machine leaves little of
    what an answer gains by computing on two cores.
    """
    from utils.input_pipeline.ladder import as_written
    from utils.input_pipeline.measuring import measure_rates

    _, shards = _write_shards(seed)
    fast = require_value(make_fast(list(shards.files), batch_size), "make_fast", "a Dataset")
    epochs = [_look(fast), _look(fast)]
    if sum(epochs[0]["sizes"]) > MOST_EXAMPLES:
        return {"epochs": epochs, "ratio": 0.0}  # it may never end
    naive = as_written(make_naive(shards.files, batch_size))
    rates = measure_rates({"naive": naive, "fast": fast}, ROUNDS)
    by_clock, by_processor = rates.ratio("fast", "naive"), rates.processor_ratio("fast", "naive")
    return {"epochs": epochs, "ratio": float(max(by_clock, by_processor))}


def _look(dataset: Any) -> dict[str, Any]:
    images, labels, ids = [], [], []
    sizes = []
    for batch in dataset:
        if not isinstance(batch, list | tuple) or len(batch) != 3:
            raise refuse(f"make_fast: {WORDS['not-batches']}")
        image, label, number = (np.atleast_1d(np.asarray(part)) for part in batch)
        sizes.append(len(number))
        images.append(image)
        labels.append(label)
        ids.append(number)
        if sum(sizes) > MOST_EXAMPLES:
            break
    if not ids:
        return {"sizes": [], "ids": [], "labels": [], "images": []}
    ids, labels, images = (np.concatenate(parts) for parts in (ids, labels, images))
    first = np.argsort(ids, kind="stable")[:SHOWN]
    return {
        "sizes": sizes,
        "ids": ids.astype(int),
        "labels": labels.astype(int),
        "images": images[first].astype(np.float32),
    }


@dataclass(frozen=True)
class PipelineCheck:
    """Exercise 1: its known mistakes with their words."""

    exercise: str = "pipeline"
    function: str = "make_fast"
    lab: str = "lab11"

    def find_fault(self, seed: int, batch_size: int, got: Any) -> tuple[str, str, str] | None:
        """Return (message, mistake's name or "", why) of what is wrong, None if nothing is."""
        try:
            name = self._find_mistake(batch_size, got)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError):
            name = "not-batches"
        if not name:
            return None
        why = WORDS[name]
        ratio = got.get("ratio") if isinstance(got, dict) else None
        speed = f"×{ratio:.2g} the naive rate" if isinstance(ratio, float) else "no measurement"
        least = f"at least ×{LEAST_RATIO:g}, with the same examples"
        return f"{self.function} gave {speed}, should give {least}: {why}", name, why

    def _find_mistake(self, batch_size: int, got: Any) -> str:
        for epoch in got["epochs"]:
            fault = _find_wrong_examples(epoch, batch_size)
            if fault:
                return fault
        first, second = (np.asarray(epoch["images"]) for epoch in got["epochs"])
        if np.array_equal(first, second):
            return "frozen-augmentation"
        return "" if got["ratio"] >= MARGIN * LEAST_RATIO else "not-faster"

    def verify(self, make_fast: Callable[..., Any]) -> None:
        """Measure `make_fast` on worked inputs: print one line, or raise AssertionError."""
        from distlab import progress

        got = try_pipeline(make_fast, 1, 64)
        fault = self.find_fault(1, 64, got)
        if fault is not None:
            raise refuse(fault[0])
        print(f"{self.function}: the same examples, at least ×{LEAST_RATIO:g} the naive rate")
        progress.record(self.lab, self.exercise)


def _find_wrong_examples(epoch: Any, batch_size: int) -> str:
    ids, labels = np.asarray(epoch["ids"]), np.asarray(epoch["labels"])
    if len(np.unique(ids)) < len(ids):
        return "examples-doubled"
    if len(ids) < EXAMPLES:
        return "examples-lost"
    truth = _read_truth()
    if not np.array_equal(labels, truth.labels[ids]):
        return "labels-torn"
    if max(epoch["sizes"]) != batch_size:
        return "not-batches"
    originals = [fingerprint(image[..., None]) for image in truth.images[np.sort(ids)[:SHOWN]]]
    shown = np.asarray(epoch["images"])
    if shown.shape != (SHOWN, 28, 28, 1) or [fingerprint(x) for x in shown] != originals:
        return "other-images"
    return ""


@cache
def _read_truth() -> Any:
    from utils.data import load

    return load("fashion_mnist").train


WORDS = {
    "frozen-augmentation": "two epochs show exactly the same images: the cache comes before the "
    "augmentation, not after it",
    "examples-lost": "examples are missing: every one comes once an epoch, the last batch too",
    "examples-doubled": "examples come more than once in an epoch",
    "labels-torn": "images and labels no longer belong together",
    "not-batches": "batches of (images, labels, ids) with the size that was asked for are wanted",
    "other-images": "the images are not augmented forms of the originals, float in [0, 1]",
    "not-faster": "too little was gained: what is done again in every epoch, or one by one, that "
    "could be done once, or for a whole batch?",
}
PIPELINE = PipelineCheck()


# ---- exercises 2 and 3: where the time goes, and what a cache saves


def expect_rate(
    stage_seconds: Sequence[float], batch_size: int, overlapped: bool, way: str = "right"
) -> float:
    """Return images per second, or what a mistake gives."""
    together = not overlapped if way == "overlap-swapped" else overlapped
    seconds = max(stage_seconds) if together else sum(stage_seconds)
    if way == "always-added":
        seconds = sum(stage_seconds)
    if way == "mean-stage":
        seconds = sum(stage_seconds) / len(stage_seconds)
    return 1 / seconds if way == "batches-counted" else batch_size / seconds


def expect_calls(examples: int, epochs: int, cache_after: str, way: str = "right") -> list[int]:
    """Return [decodings, augmentations] in so many epochs, or what a mistake gives."""
    every = examples * epochs
    decodings = every if cache_after == "nothing" else examples
    augmentations = examples if cache_after == "augment" else every
    if way == "cache-ignored":
        decodings, augmentations = every, every
    if way == "all-cached" and cache_after != "nothing":
        augmentations = examples
    if way == "first-epoch-free":
        decodings -= examples if cache_after == "nothing" else 0
        decodings = 0 if cache_after != "nothing" else decodings
    return [decodings, augmentations]


_STAGES = (0.010, 0.030, 0.005)
RATE = make_check(
    ("lab11", "rate", "predict_rate"),
    ((_STAGES, 64, True), (_STAGES, 64, False)),
    expect_rate,
    {
        "overlap-swapped": "with prefetch the slowest stage decides; without, the stages add up",
        "always-added": "stages that overlap do not add up: the slowest one decides",
        "mean-stage": "neither the sum nor the slowest: a mean of the stages says nothing",
        "batches-counted": "these are batches a second: images are asked for",
    },
    hint="seconds for one batch first, then images a second",
)
CALLS = make_check(
    ("lab11", "calls", "count_calls"),
    ((1000, 5, "nothing"), (1000, 5, "parse"), (1000, 5, "augment")),
    expect_calls,
    {
        "cache-ignored": "what lies before a cache runs in the first epoch only",
        "all-cached": "what comes after the cache runs in every epoch",
        "first-epoch-free": "the first epoch fills the cache: it does the work",
    },
    hint="before the cache: once; after it: every epoch",
)


def check_pipeline(make_fast: Callable[..., Any]) -> None:
    """Measure `make_fast` beside the naive pipeline; AssertionError names the mistake."""
    PIPELINE.verify(make_fast)


def check_rate(answers: Sequence[Any]) -> None:
    """Compare `predict_rate` of each of `RATE.examples`."""
    RATE.verify(answers)


def check_calls(answers: Sequence[Any]) -> None:
    """Compare `count_calls` of each of `CALLS.examples`."""
    CALLS.verify(answers)
