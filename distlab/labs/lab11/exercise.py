"""Lab 11, tf.data: a pipeline measured next to the naive one in the same process, and two sums."""

import re
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations
from time import perf_counter, process_time
from typing import Any

import numpy as np

from distlab.exercises.exercise import Exercise, each
from distlab.exercises.refusing import own_frames, refuse, require_kind, require_value
from distlab.exercises.watching import watch_calls
from distlab.labs import ANSWERS
from utils.input_pipeline.examples import MAX_SHIFT, augment, fingerprint, parse

ABSENT = (
    *ANSWERS,
    "utils.input_pipeline.ladder",
    "utils.input_pipeline.parsing",
    "utils.input_pipeline.rebuild",
    "utils.input_pipeline.scenes",
    "utils.input_pipeline.tuning",
)
__all__ = ["augment", "parse"]

EXAMPLES, SHARDS, ROUNDS = 2000, 8, 5
READY = re.compile(r"input_pipeline\.(?!examples)")  # not to be called
MIN_RATIO = 3.0  # asked for
TRIES = 5  # a busy machine is measured again before an answer is called slow,
HOPELESS = 1.2  # but only once again where this is the best of two
MARGIN = 2 / 3  # what a busy machine may take off: a ratio of 2 passes
MAX_EXAMPLES = 4 * EXAMPLES  # checked in one epoch
SHOWN = 16  # examples of each epoch checked pixel by pixel, drawn anew for each answer
FEW = 1 / 8  # of the images shown; at random, one in two is flipped and four in five shifted
ENOUGH, MIN_WAYS = 6, 7  # epochs to tell which of the ten forms occur; so many are missed by none
MIN_SHIFTED, MANY = 0.6, 8  # of images, at random 0.8; epochs in which none stays as it was
PAID, MAX_EPOCHS = 1.5, 40  # the gain with all work ahead counted, after this many epochs
_MISTAKES = {
    "frozen-augmentation": "two epochs show exactly the same images: either a cache comes after "
    "the augmentation and not before it, or the random numbers have a fixed seed",
    "examples-lost": "examples are missing: every one comes once an epoch, the last batch too",
    "examples-doubled": "examples come more than once in an epoch: one pass over the data set is "
    "one epoch, without repeat() and without drawing examples anew, with replacement",
    "not-augmented": "the images are the originals: flip and shift them at random",
    "never-flipped": "no image is flipped: each one is mirrored with a chance of a half",
    "never-shifted": "no image is shifted: each one goes 0, 1 or 2 columns round to either side",
    "few-forms": "only a few of the ten forms of an image occur: flipped or not, 0, 1 or 2 columns "
    "to either side, each image with its own random numbers",
    "only-some": "some images stay unchanged, epoch after epoch: each one is flipped or shifted "
    "with its own random numbers, every time",
    "one-for-all": "all images of a batch are flipped or shifted alike: each image has its "
    "own random numbers",
    "labels-torn": "images and labels no longer belong together",
    "not-batches": "return batches of (images, labels, ids) with the size that you were given",
    "other-images": "the images aren't augmented forms of the originals, float in [0, 1]",
    "ahead": "epochs were computed ahead, before anyone asked for them: with that work counted, "
    "nothing is gained. Each epoch itself has to be quick",
    "not-faster": "too little was gained: what is done again in every epoch, or one by one, that "
    "could be done once, or for a whole batch?",
}


# ---- exercise 1: a fast pipeline, measured


@cache
def _write_shards(seed: int) -> Any:
    from utils.data import load
    from utils.input_pipeline.store import write_shards

    folder = tempfile.TemporaryDirectory()
    order = np.random.default_rng(seed).permutation(EXAMPLES)
    train = load("fashion_mnist").train
    split = type(train)(train.images[:EXAMPLES], train.labels[:EXAMPLES])
    return folder, write_shards(split, folder.name, SHARDS, order)  # the folder lives as long


def _call(make_fast: Callable[..., Any], files: list[str], batch_size: int) -> Any:
    """Return the data set that an answer makes, with its own functions for batches."""
    with watch_calls(("utils.input_pipeline",)) as called, own_frames():
        dataset = make_fast(files, batch_size)
    ready = sorted(name for name in called if READY.search(name))
    if ready:
        raise refuse(
            f"make_fast calls {', '.join(ready)}. The lab doesn't allow that, since writing it "
            "yourself is the exercise"
        )
    return require_value(dataset, "make_fast", "a Dataset")


def make_naive(files: Sequence[str], batch_size: int) -> Any:
    """Return the pipeline to beat: one thing after the other, nothing remembered."""
    import tensorflow as tf

    records = tf.data.Dataset.from_tensor_slices(list(files)).flat_map(tf.data.TFRecordDataset)
    return records.map(parse).map(augment).batch(batch_size)


def try_pipeline(make_fast: Callable[..., Any], seed: int, batch_size: int) -> dict[str, Any]:
    """Return the contents of every epoch of `make_fast`, and its speed relative to the naive
    pipeline's.

    `ratio`: the two take turns, so that whatever else the machine does hits both. It is the median
    over the rounds after the first, which fills caches. The better of clock and processor time
    counts: by the clock, a busy machine leaves little of what an answer gains by computing on two
    cores. `paid`: the same over all epochs together, with the work of making the data set and
    between epochs; it takes more epochs until it is `PAID`. Work done ahead of `MAX_EPOCHS`
    different epochs is as much as the naive one's.
    """
    import tensorflow as tf

    from utils.input_pipeline.chain import as_written

    tf.random.set_seed(None)  # with a seed of the process, every epoch draws the same
    _, shards = _write_shards(seed)
    naive = as_written(make_naive(shards.files, batch_size))
    account = _Account(naive)
    fast = _read_dataset(_call(make_fast, list(shards.files), batch_size))
    first = _look(fast)
    shown = _choose_shown(first)
    epochs = [_describe(first, shown), _describe(_look(fast), shown)]
    found = {"epochs": epochs, "ratio": None, "paid": None}
    if _examine(epochs, batch_size):
        return found  # its speed says nothing; it may never end
    account.fast += len(epochs)
    ratio, tries = 0.0, 0
    while ratio < MARGIN * MIN_RATIO and tries < (TRIES if tries < 2 or ratio > HOPELESS else 2):
        ratio = max(ratio, _measure_ratio(naive, fast, epochs, shown))
        account.naive, account.fast, tries = account.naive + ROUNDS + 1, len(epochs), tries + 1
    if ratio >= MARGIN * MIN_RATIO and not _examine(epochs, batch_size):
        found["paid"] = _wait_until_paid(account, fast, epochs, shown, batch_size)
    return found | {"ratio": ratio}


class _Account:
    """An answer's cost since before it was called: all of it, but for the naive epochs."""

    def __init__(self, naive: Any) -> None:
        _time_epoch(naive)
        times = [_time_epoch(naive)[1:] for _ in range(3)]
        self.each = np.median(times, axis=0)  # seconds of a naive epoch: clock, processor
        self.naive = self.fast = 0  # epochs since
        self._begun = _read_clocks()

    def measure(self) -> float:
        """Return how many times as fast as the naive pipeline all epochs together were."""
        spent = _read_clocks() - self._begun - self.naive * self.each
        return float(np.max(self.fast * self.each / np.maximum(spent, 1e-9)))


def _wait_until_paid(
    account: _Account, fast: Any, epochs: list[Any], shown: np.ndarray, batch_size: int
) -> float:
    """Ask for epochs until work done ahead is paid. Keep of them only what shows a mistake."""
    seen = {epoch["images"].tobytes() for epoch in epochs}
    while (paid := account.measure()) < PAID and account.fast < MAX_EPOCHS:
        epoch = _describe(_look(fast), shown)
        account.fast += 1
        before = len(seen)
        seen.add(epoch["images"].tobytes())
        if len(seen) == before or _find_wrong_examples(epoch, batch_size):
            epochs.append(epoch)
            break
    return paid


def _measure_ratio(naive: Any, fast: Any, epochs: list[Any], shown: np.ndarray) -> float:
    """Return how many times as fast `fast` is; add its examples to `epochs`."""
    ratios = []
    for number in range(ROUNDS + 1):
        slow, (kept, *quick) = _time_epoch(naive)[1:], _time_epoch(fast)
        epochs.append(_describe(kept, shown))
        if number:
            ratios.append([a / b for a, b in zip(slow, quick)])
    by_clock, by_processor = np.median(ratios, axis=0)
    return float(max(by_clock, by_processor))


def _read_dataset(made: Any) -> Any:
    """Return the data set that `made` is, without what Python's side of it could add."""
    import tensorflow as tf

    require_kind(made, "make_fast", "tf.data.Dataset")
    variant = tf.data.experimental.to_variant(made)
    return tf.data.experimental.from_variant(variant, made.element_spec)


def _time_epoch(dataset: Any) -> tuple[list[Any], float, float]:
    """Return the batches of an epoch, and its seconds by the clock and by processor time."""
    begun = _read_clocks()
    kept = list(dataset.take(MAX_EXAMPLES))
    by_clock, by_processor = _read_clocks() - begun
    return kept, float(by_clock), float(by_processor)


def _read_clocks() -> np.ndarray:
    return np.array([perf_counter(), process_time()])


def _look(dataset: Any) -> list[Any]:
    """Return the batches of an epoch, which may be no batches, or never end."""
    batches, size = [], 0
    for batch in dataset:
        if not isinstance(batch, list | tuple) or len(batch) != 3:
            raise refuse(f"make_fast: {_MISTAKES['not-batches']}")
        batches.append(batch)
        size += len(np.atleast_1d(np.asarray(batch[2])))
        if size > MAX_EXAMPLES:
            break
    return batches


def _choose_shown(batches: Sequence[Sequence[Any]]) -> np.ndarray:
    """Return the ids [SHOWN] to look at: half of them from one batch, to be compared."""
    rng = np.random.default_rng()
    order = rng.permutation(EXAMPLES)
    if batches:
        ids = np.asarray(batches[rng.integers(len(batches))][2]).ravel()
        order = np.concatenate([rng.permutation(order[np.isin(order, ids)])[: SHOWN // 2], order])
    _, first = np.unique(order, return_index=True)
    return np.sort(order[np.sort(first)][:SHOWN])


def _describe(batches: Sequence[Sequence[Any]], shown: np.ndarray) -> dict[str, Any]:
    """Return what an epoch held: sizes, ids, labels, and the images and batches of ids `shown`."""
    if not batches:
        empty: dict[str, Any] = {key: [] for key in ("sizes", "ids", "labels", "shown", "batches")}
        return empty | {"images": np.zeros(0)}
    arrays = [[np.atleast_1d(np.asarray(part)) for part in batch] for batch in batches]
    images, labels, ids = (np.concatenate(parts) for parts in zip(*arrays))
    order = np.argsort(ids, kind="stable")
    chosen = order[np.isin(ids[order], shown)][:SHOWN]
    return {
        "sizes": [len(batch[2]) for batch in arrays],
        "ids": ids.astype(int),
        "labels": labels.astype(int),
        "shown": ids[chosen].astype(int),
        "batches": np.repeat(np.arange(len(arrays)), [len(batch[2]) for batch in arrays])[chosen],
        "images": images[chosen].astype(np.float32),
    }


def describe_pipeline(found: Any, seed: int, batch_size: int) -> dict[str, Any]:
    """Return the mistake that what `try_pipeline` found shows ("" for none), and its speed."""
    found = found if isinstance(found, dict) else {}
    mistake, ratio = _examine(found.get("epochs"), batch_size), found.get("ratio")
    if not isinstance(ratio, float):
        return {"mistake": mistake or "not-faster", "speed": "other examples"}
    paid = found.get("paid")
    if ratio < MARGIN * MIN_RATIO:
        mistake = mistake or "not-faster"
    elif not isinstance(paid, float) or paid < PAID:
        mistake = mistake or "ahead"
    return {"mistake": mistake, "speed": f"×{ratio:.2g} the naive rate"}


def _examine(epochs: Any, batch_size: int) -> str:
    """Return the name of the fault in the epochs' examples, "" if there is none."""
    try:
        mistakes = [_find_wrong_examples(epoch, batch_size) for epoch in epochs]
        shown = {np.asarray(epoch["images"]).tobytes() for epoch in epochs}
        frozen = "frozen-augmentation" if len(shown) < len(epochs) else ""
        if len({np.asarray(epoch["shown"]).tobytes() for epoch in epochs}) > 1:
            return next(filter(None, mistakes), "examples-lost")
        if not any(mistakes):
            fits = _find_forms(epochs)
            mistakes += [_find_tame(fits), frozen, _find_alike(epochs, fits)]
    except (TypeError, ValueError, KeyError, IndexError, AttributeError):
        return "not-batches"
    return next(filter(None, mistakes), frozen)


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
    originals = [fingerprint(image[..., None]) for image in truth.images[epoch["shown"]]]
    shown = np.asarray(epoch["images"])
    if shown.shape != (SHOWN, 28, 28, 1) or [fingerprint(x) for x in shown] != originals:
        return "other-images"
    return ""


def _find_forms(epochs: Any) -> list[list[set[tuple[int, int]]]]:
    """Return for each image shown in each epoch which flips and shifts it can come from."""
    ways = [(flip, shift) for flip in (1, -1) for shift in range(-MAX_SHIFT, MAX_SHIFT + 1)]
    originals = _read_truth().images[epochs[0]["shown"]] / np.float32(255)
    shown = np.stack([np.asarray(epoch["images"])[..., 0] for epoch in epochs])
    forms = {way: np.roll(originals[:, :, :: way[0]], way[1], 2) for way in ways}
    return [
        [
            {way for way in ways if np.allclose(forms[way][k], seen, atol=0.01)}
            for k, seen in enumerate(images)
        ]
        for images in shown
    ]


def _find_tame(epochs: Sequence[Sequence[set[tuple[int, int]]]]) -> str:
    """Return which of the two random changes hardly an image shown has, "" if both occur."""
    fits = [fit for epoch in epochs for fit in epoch]
    if not all(fits):
        return "other-images"
    flipped = np.mean([all(flip == -1 for flip, _ in fit) for fit in fits])
    shifted = np.mean([all(shift != 0 for _, shift in fit) for fit in fits])
    unflipped, unshifted = flipped < FEW, shifted < FEW
    return {(1, 1): "not-augmented", (1, 0): "never-flipped", (0, 1): "never-shifted"}.get(
        (unflipped, unshifted), ""
    )


def _find_alike(epochs: Any, fits: Sequence[Sequence[set[tuple[int, int]]]]) -> str:
    """Return whether few forms occur, a batch's images change alike, or some don't; else ""."""
    if len(epochs) < ENOUGH:
        return ""
    known = [
        [(batch, *fit) for batch, fit in zip(epoch["batches"], row, strict=True) if len(fit) == 1]
        for epoch, row in zip(epochs, fits, strict=True)
    ]
    if len({way for row in known for _, way in row}) < MIN_WAYS:
        return "few-forms"
    pairs = [(a[1], b[1]) for row in known for a, b in combinations(row, 2) if a[0] == b[0]]
    alike = [all(a[part] == b[part] for a, b in pairs) for part in (0, 1)]
    if len(pairs) >= SHOWN and any(alike):
        return "one-for-all"
    shifted = np.mean([shift != 0 for row in known for _, (_, shift) in row])
    still = len(epochs) >= MANY and any(set.intersection(*column) for column in zip(*fits))
    return "only-some" if shifted < MIN_SHIFTED or still else ""


@cache
def _read_truth() -> Any:
    from utils.data import load

    return load("fashion_mnist").train


def _contrast_speeds(got: Any, right: Any) -> str:
    wanted = f"at least ×{MIN_RATIO:g}, with the same examples"
    return f"gave {got['speed']}, should give {wanted}"


PIPELINE = Exercise(
    lab="lab11",
    name="pipeline",
    function="make_fast",
    examples=((1, 64),),
    mistakes=_MISTAKES,
    hint=_MISTAKES["not-faster"],
    run=each(try_pipeline),
    read=describe_pipeline,
    contrast=_contrast_speeds,
    success=f"make_fast: the same examples, at least ×{MIN_RATIO:g} the naive rate",
)


# ---- exercises 2 and 3: where the time goes, and what a cache saves


_STAGES = (0.010, 0.030, 0.005)
RATE = Exercise(
    lab="lab11",
    name="rate",
    function="predict_rate",
    examples=((_STAGES, 64, True), (_STAGES, 64, False)),
    mistakes={
        "overlap-swapped": "with prefetch the slowest stage decides; without, the stages add up",
        "always-added": "stages that overlap don't add up: the slowest one decides",
        "fastest-stage": "the fastest stage waits for the others: the slowest one decides",
        "mean-stage": "neither the sum nor the slowest: a mean of the stages says nothing",
        "batches-counted": "these are batches/s: return images/s",
    },
    hint="seconds for one batch first, then images/s",
)
CALLS = Exercise(
    lab="lab11",
    name="calls",
    function="count_calls",
    examples=((1000, 5, "nothing"), (1000, 5, "parse"), (1000, 5, "augment")),
    mistakes={
        "cache-ignored": "stages before a cache run in the first epoch only",
        "all-cached": "what comes after the cache runs in every epoch",
        "first-epoch-free": "the first epoch fills the cache: it does the work",
    },
    hint="before the cache: once; after it: every epoch",
)
