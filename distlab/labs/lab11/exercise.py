"""Lab 11, tf.data: the epochs of a pipeline, what they hold and take, and two sums."""

import re
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations, product
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

from distlab.exercises.exercise import Exercise, each
from distlab.exercises.folder import Folder
from distlab.exercises.refusing import own_frames, refuse, require_kind, require_value
from distlab.exercises.watching import watch_calls
from distlab.labs import ANSWERS
from utils.input_pipeline.chain import as_written
from utils.input_pipeline.examples import MAX_SHIFT, augment, parse

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
WAYS = tuple(product((1, -1), range(-MAX_SHIFT, MAX_SHIFT + 1)))  # flip and shift of each form
FEW = 1 / 8  # of all images; at random, one in two is flipped and four in five shifted
RARE = 0.03  # of all images, for one form; at random 0.1
MIN_SHIFTED = 0.6  # of all images; at random 0.8
MAX_ALIKE = 0.9  # of a batch; at random 0.5 are flipped, and 0.2 shifted alike
MAX_AGAIN = 0.3  # of the images, in another epoch; at random 0.1
MAX_STUCK = 0.05  # of the images, above what chance does in as many epochs
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
    "only-some": "some images look as they did in another epoch: each one is flipped and "
    "shifted with its own random numbers, every time",
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
def _draw_examples(seed: int) -> Any:
    """Return examples that nobody has seen: two images each, laid over each other."""
    from utils.data import load

    train = load("fashion_mnist").train
    one, other = np.random.default_rng(seed).choice(len(train), (2, EXAMPLES), replace=False)
    return type(train)(np.maximum(train.images[one], train.images[other]), train.labels[one])


@cache
def _write_shards(seed: int) -> Any:
    from utils.input_pipeline.store import write_shards

    folder = tempfile.TemporaryDirectory()
    order = np.random.default_rng(seed).permutation(EXAMPLES)
    write_shards(_draw_examples(seed), folder.name, SHARDS, order)
    return folder  # which lives as long as what holds it


def make_naive(files: Sequence[str], batch_size: int) -> Any:
    """Return the pipeline to beat: one thing after the other, nothing remembered."""
    import tensorflow as tf

    records = tf.data.Dataset.from_tensor_slices(list(files)).flat_map(tf.data.TFRecordDataset)
    return as_written(records.map(parse).map(augment).batch(batch_size))


def serve_pipeline(make: Callable[..., Any] = make_naive) -> Callable[..., Any]:
    """Return `make` as a function that gives plain data.

    Called with a folder of TFRecord files and a batch size it makes the data set. Called without
    anything it returns an epoch: "sizes" of the batches, "ids", "labels", "images" as uint8.
    """
    made: list[Any] = []

    def ask(*arguments: Any) -> Any:
        if not arguments:
            return _read_epoch(made[-1])
        folder, batch_size = arguments
        files = sorted(str(path) for path in Path(folder).iterdir())
        made.append(_read_dataset(_call(make, files, batch_size)))

    return ask


def _call(make: Callable[..., Any], files: list[str], batch_size: int) -> Any:
    """Return the data set that an answer makes, with its own functions for batches."""
    import tensorflow as tf

    tf.random.set_seed(None)  # with a seed of the process, every epoch draws the same
    with watch_calls(("utils.input_pipeline",)) as called, own_frames():
        dataset = make(files, batch_size)
    ready = sorted(name for name in called if READY.search(name))
    if ready:
        raise refuse(
            f"make_fast calls {', '.join(ready)}. The lab doesn't allow that, since writing it "
            "yourself is the exercise"
        )
    return require_value(dataset, "make_fast", "a Dataset")


def _read_dataset(made: Any) -> Any:
    """Return the data set that `made` is, without what Python's side of it could add."""
    import tensorflow as tf

    require_kind(made, "make_fast", "tf.data.Dataset")
    variant = tf.data.experimental.to_variant(made)
    return tf.data.experimental.from_variant(variant, made.element_spec)


def _read_epoch(dataset: Any) -> dict[str, Any]:
    """Return an epoch, which may hold nothing, or never end."""
    batches: list[Any] = []
    sizes: list[int] = []
    for batch in dataset:
        if not isinstance(batch, list | tuple) or len(batch) != 3:
            raise refuse(f"make_fast: {_MISTAKES['not-batches']}")
        batches.append([np.atleast_1d(np.asarray(part)) for part in batch])
        sizes.append(len(batches[-1][2]))
        if sum(sizes) > EXAMPLES:
            break
    empty = [np.zeros(0)] * 3
    images, labels, ids = (np.concatenate(parts) for parts in zip(*batches or [empty]))
    pixels = np.clip(images * 255 + 0.5, 0, 255).astype(np.uint8)
    return {"sizes": sizes, "ids": ids, "labels": labels, "images": pixels}


class EpochMeter:
    """Asks a served pipeline, and keeps what it takes by the clock and of the processor."""

    def __init__(self, answer: Callable[..., Any]) -> None:
        self._answer = answer
        self._read = getattr(answer, "read_clocks", _read_clocks)
        self._begun = self._ended = self._read()
        self.epochs: list[np.ndarray] = []  # seconds of each

    def ask(self, *arguments: Any) -> Any:
        """Return the reply."""
        begun = self._read()
        reply = self._answer(*arguments)
        self._ended = self._read()
        if not arguments:
            self.epochs.append(self._ended - begun)
        return reply

    def compare(self, naive: float, rounds: int) -> float:
        """Return how many times as fast as a `naive` epoch the last epochs were."""
        by_clock, by_processor = np.transpose(self.epochs[-rounds:])
        return float(naive / max(min(np.median(by_clock), np.mean(by_processor)), 1e-9))

    def compare_all(self, naive: float) -> float:
        """Return the same for all epochs together, with everything done since before the first."""
        return float(naive * len(self.epochs) / max(min(self._ended - self._begun), 1e-9))


def _read_clocks() -> np.ndarray:
    return np.array([perf_counter(), process_time()])


_naive_seconds: list[float] = []  # what was measured in this process


def measure_naive(served: Callable[..., Any]) -> None:
    """Measure the processor seconds of a naive epoch: another program only slows the clock."""
    meter = EpochMeter(served)
    meter.ask(Folder(_write_shards(1).name), 64)
    for _ in range(4):
        meter.ask()
    _naive_seconds[:] = [float(np.median(meter.epochs[1:], axis=0)[1])]


def try_pipeline(answer: Callable[..., Any], seed: int, batch_size: int) -> dict[str, Any]:
    """Return the contents of every epoch of a served pipeline, and its relative speed.

    `ratio` compares an epoch after the first two with a naive one. The better of clock and
    processor counts: by the clock, a busy machine leaves little of what an answer gains by
    computing on two cores. `paid`: the same over all epochs together, with the work of making the
    data set and between epochs. It takes more epochs until it is `PAID`. Work done ahead of
    `MAX_EPOCHS` different epochs is as much as the naive one's.
    """
    if not _naive_seconds:
        measure_naive(serve_pipeline())
    naive, meter, epochs = _naive_seconds[0], EpochMeter(answer), list[dict[str, Any]]()

    def look(count: int) -> None:
        asked = [meter.ask() for _ in range(count)]
        epochs.extend(_describe(epoch, seed) for epoch in asked)

    meter.ask(Folder(_write_shards(seed).name), batch_size)
    look(2)
    found = {"epochs": epochs, "ratio": None, "paid": None}
    if _examine(epochs, seed, batch_size):
        return found  # its speed says nothing
    ratio, tries = 0.0, 0
    while ratio < MARGIN * MIN_RATIO and tries < (TRIES if tries < 2 or ratio > HOPELESS else 2):
        look(ROUNDS)
        ratio, tries = max(ratio, meter.compare(naive, ROUNDS)), tries + 1
    while (paid := meter.compare_all(naive)) < PAID and len(epochs) < MAX_EPOCHS:
        if ratio < MARGIN * MIN_RATIO or _examine(epochs, seed, batch_size):
            break
        look(1)
    return found | {"ratio": ratio, "paid": paid}


def _describe(epoch: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return an epoch with the form of each image, a number of `WAYS`, in place of its pixels."""
    ids, images = np.asarray(epoch["ids"]).astype(np.int32), np.asarray(epoch["images"])
    forms = np.full(len(ids), -1, np.int8)
    if images.shape == (len(ids), 28, 28, 1) and ((ids >= 0) & (ids < EXAMPLES)).all():
        originals = _draw_examples(seed).images[ids]
        for number, (flip, shift) in enumerate(WAYS):
            form = np.roll(originals[:, :, ::flip], shift, axis=2)
            forms[(form == images[..., 0]).all(axis=(1, 2))] = number
    labels = np.asarray(epoch["labels"]).astype(np.int32)
    return {"sizes": epoch["sizes"], "ids": ids, "labels": labels, "forms": forms}


def describe_pipeline(found: Any, seed: int, batch_size: int) -> dict[str, Any]:
    """Return the mistake that what `try_pipeline` found shows ("" for none), and its speed."""
    found = found if isinstance(found, dict) else {}
    mistake, ratio = _examine(found.get("epochs"), seed, batch_size), found.get("ratio")
    if not isinstance(ratio, float):
        return {"mistake": mistake or "not-faster", "speed": "other examples"}
    paid = found.get("paid")
    if ratio < MARGIN * MIN_RATIO:
        mistake = mistake or "not-faster"
    elif not isinstance(paid, float) or paid < PAID:
        mistake = mistake or "ahead"
    return {"mistake": mistake, "speed": f"×{ratio:.2g} the naive rate"}


def _examine(epochs: Any, seed: int, batch_size: int) -> str:
    """Return the name of the fault in the epochs' examples, "" if there is none."""
    try:
        for epoch in epochs:
            if mistake := _find_wrong_examples(epoch, seed, batch_size):
                return mistake
        ways = np.array(WAYS)[np.stack([epoch["forms"] for epoch in epochs])]
        return _find_tame(ways) or _find_alike(epochs, ways) or _find_again(epochs)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError):
        return "not-batches"


def _find_wrong_examples(epoch: Any, seed: int, batch_size: int) -> str:
    ids, labels = np.asarray(epoch["ids"]), np.asarray(epoch["labels"])
    if len(np.unique(ids)) < len(ids):
        return "examples-doubled"
    if len(ids) < EXAMPLES:
        return "examples-lost"
    if not np.array_equal(labels, _draw_examples(seed).labels[ids]):
        return "labels-torn"
    if max(epoch["sizes"]) != batch_size or sum(epoch["sizes"]) != EXAMPLES:
        return "not-batches"
    return "other-images" if min(epoch["forms"]) < 0 else ""


def _find_tame(ways: np.ndarray) -> str:
    """Return which of the random changes hardly an image shows, "" if all occur.

    `ways` are flip and shift, [epoch, example, 2].
    """
    few = (np.mean(ways[..., 0] == -1) < FEW, np.mean(ways[..., 1] != 0) < FEW)
    return {(1, 1): "not-augmented", (1, 0): "never-flipped", (0, 1): "never-shifted"}.get(few, "")


def _find_alike(epochs: Any, ways: np.ndarray) -> str:
    """Return whether a batch's images change alike, or a form is missing; else ""."""
    batches = [
        batch
        for epoch, changes in zip(epochs, ways)
        for batch in np.split(changes, np.cumsum(epoch["sizes"])[:-1])
    ]
    for part in (0, 1):
        most = [np.unique(batch[:, part], return_counts=True)[1].max() for batch in batches]
        if np.mean(np.divide(most, [len(batch) for batch in batches])) > MAX_ALIKE:
            return "one-for-all"
    shares = [np.mean((ways == way).all(axis=2)) for way in WAYS]
    return "few-forms" if min(shares) < RARE else ""


def _find_again(epochs: Any) -> str:
    """Return whether epochs show the same images, or some of them don't change; else ""."""
    forms = np.stack([np.asarray(epoch["forms"])[np.argsort(epoch["ids"])] for epoch in epochs])
    again = max(np.mean(one == other) for one, other in combinations(forms, 2))
    if again == 1:
        return "frozen-augmentation"
    ways = np.array(WAYS)[forms]
    stuck = (ways == ways[0]).all(axis=0).mean(axis=0)  # of all examples: by flip, by shift
    unshifted = np.mean(ways[..., 1] == 0) > 1 - MIN_SHIFTED
    some = again > MAX_AGAIN or max(stuck) > MAX_STUCK + 0.5 ** (len(forms) - 1)
    return "only-some" if some or unshifted else ""


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
    before=measure_naive,
    serve=serve_pipeline,
    run=each(try_pipeline),
    read=describe_pipeline,
    contrast=_contrast_speeds,
    evidence="outside",
    success=f"make_fast: the same examples, at least ×{MIN_RATIO:g} the naive rate",
)


# ---- exercises 2 and 3: where the time goes, and what a cache saves


_STAGES = (0.010, 0.030, 0.005)
RATE = Exercise(
    lab="lab11",
    name="rate",
    function="predict_rate",
    examples=((_STAGES, 64, True), (_STAGES, 64, False), ((0.9, 1.6), 10, True)),
    mistakes={
        "overlap-swapped": "with prefetch the slowest stage decides; without, the stages add up",
        "always-added": "stages that overlap don't add up: the slowest one decides",
        "fastest-stage": "the fastest stage waits for the others: the slowest one decides",
        "mean-stage": "neither the sum nor the slowest: a mean of the stages says nothing",
        "seconds-told": "these are the seconds of a batch: divide its images by them",
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
        "parsed-again": "a cache after augment keeps what parse made, too: neither runs again",
        "never-frozen": "a cache after augment keeps the augmented images: none is augmented again",
        "always-cached": "without a cache every epoch decodes and augments anew",
        "later-epochs-only": "what comes after the cache runs in the first epoch, too",
        "first-epoch-free": "the first epoch fills the cache: it does the work",
    },
    hint="before the cache: once; after it: every epoch",
)
