"""`tune`: stage settings found by measuring, the bottleneck, and the code.

The dataset is taken apart (`chain`), each stage is timed alone (`costs`), and
then one change after another is tried against the best so far, in turns, with a
step after each batch. A change stays if it makes the loop at least 5 % faster.
The result delivers the same elements. Their order changes where shards are read at
once. A cache goes only where its elements are the same each time.
"""

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ..environment import quiet_tensorflow
from ..errors import InputError, first_line
from .chain import ChainStage, take_apart
from .costs import measure_costs
from .measuring import count_images
from .rebuild import (
    AUTOTUNE,
    TuneSettings,
    find_vectorizable,
    order_stages,
    rebuild,
    write_code,
)
from .report import Trial, TuneReport


@dataclass(frozen=True)
class Pace:
    """A measured rate: seconds and images per batch, and whether the dataset came to its end."""

    batches: int
    images: int
    seconds: float
    ended: bool

    @property
    def seconds_per_batch(self) -> float:
        return self.seconds / self.batches

    @property
    def images_per_second(self) -> float:
        return self.images / self.seconds if self.seconds else float("inf")


def run_for(dataset: Any, seconds: float, step_seconds: float = 0.0) -> Pace:
    """Iterate `dataset` for about `seconds`, or to its end, sleeping a step after each batch.

    The first batch is waited for before the clock starts: starting a pipeline isn't its pace. A
    dataset of one batch is timed with it. Raises InputError for an empty dataset and for one that
    fails, with TensorFlow's first line.
    """
    batches = images = 0
    begun = time.perf_counter()
    elements = _guarded(dataset)
    first = next(elements, None)
    if first is None:
        raise InputError("The dataset is empty, so there is nothing to measure.")
    started, ended = time.perf_counter(), True
    time.sleep(step_seconds)
    for batch in elements:
        batches, images = batches + 1, images + count_images(batch)
        if step_seconds:
            time.sleep(step_seconds)
        if time.perf_counter() - started > seconds:
            ended = False
            break
    passed = time.perf_counter() - (started if batches else begun)
    return Pace(max(batches, 1), images or count_images(first), passed, ended)


def _guarded(dataset: Any) -> Any:
    import tensorflow as tf

    number = 0
    try:
        for element in dataset:
            number += 1
            yield element
    except tf.errors.OpError as error:
        raise InputError(
            f"The dataset failed at element {number + 1}: {type(error).__name__}: "
            f"{first_line(error)}"
        ) from None


@dataclass(frozen=True)
class Comparison:
    """The second dataset's speed-up, and both datasets' seconds and images per second."""

    ratio: float
    seconds_per_batch: tuple[float, float]
    images_per_second: tuple[float, float]


def compare(best: Any, other: Any, seconds: float, step_seconds: float) -> Comparison:
    """Run both in turns for `seconds` in all, three rounds; medians over the rounds."""
    rounds = 3
    paces: tuple[list[Pace], list[Pace]] = ([], [])
    for number in range(rounds):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            dataset = (best, other)[which]
            paces[which].append(run_for(dataset, seconds / (2 * rounds), step_seconds))
    ratio = statistics.median(
        b.images_per_second / a.images_per_second for a, b in zip(*paces, strict=True)
    )
    of_batch, rates = (
        tuple(statistics.median(getattr(pace, name) for pace in each) for each in paces)
        for name in ("seconds_per_batch", "images_per_second")
    )
    return Comparison(ratio, of_batch, rates)


BETTER = 1.05
KEEPS_UP = 0.05  # of a batch's time with ready tensors: waiting less than this isn't waiting


def tune(
    make_dataset: Callable[[], Any],
    step_seconds: float = 0.0,
    seconds: float = 20.0,
    max_cache_bytes: float = 1e9,
    say: Callable[[str], None] = lambda text: None,
) -> TuneReport:
    """Find settings for the dataset that `make_dataset()` returns, in about `seconds`.

    `make_dataset` takes no arguments and returns a `tf.data.Dataset` of batches, as naive as
    can be: sources, `flat_map` or `interleave` over files, `map`, `shuffle`, `batch`. A
    function given to `map` may have a form for whole batches (`batch_form`), which is then
    tried. `step_seconds` is the time of the training step. It is emulated by a sleep, which
    leaves the processor to the pipeline, as an accelerator does. A cache takes at most
    `max_cache_bytes`. A repeat is left out of the measurements and comes back in the code.
    `say` gets a line after each measurement. Returns the settings, the bottleneck and code to
    paste. Raises InputError if the function raises or returns something else, and if the
    dataset is empty or fails.

        print(tune(make_dataset, step_seconds=0.02))
    """
    _check(step_seconds, seconds)
    dataset = call(make_dataset)
    stages = take_apart(dataset)
    search = _Search(stages, step_seconds, seconds, max_cache_bytes, say)
    written = search.best
    pace = search.measure(written)
    say(f"as written: {pace.images_per_second:,.0f} images per second")
    ready = search.measure(_repeat_first(dataset))
    costs = measure_costs(stages, seconds / 6)
    say("the costs of the stages are measured")
    search.ready_seconds = ready.seconds_per_batch
    search.batch_seconds = pace.seconds_per_batch
    search.run()
    before, after = search.confirm(written, pace.images_per_second)
    return TuneReport(
        step_seconds=step_seconds,
        images_per_batch=pace.images / pace.batches,
        as_written=before,
        tuned=after,
        limit=ready.images_per_second,
        costs=tuple(costs),
        trials=tuple(search.trials),
        settings=search.settings,
        code=write_code(stages, search.settings),
        notes=tuple(search.notes),
    )


def call(make_dataset: Callable[[], Any]) -> Any:
    """Return what `make_dataset()` returns if it is a dataset; raise InputError if not."""
    with quiet_tensorflow():
        import tensorflow as tf
    name = getattr(make_dataset, "__name__", "the function")
    try:
        dataset = make_dataset()
    except Exception as error:
        said = f"{type(error).__name__}: {first_line(error)}"
        raise InputError(f"{name}() raised {said}") from error
    if not isinstance(dataset, tf.data.Dataset):
        raise InputError(f"{name}() must return a tf.data.Dataset, got {type(dataset).__name__}.")
    return dataset


def _check(step_seconds: float, seconds: float) -> None:
    if not 0 <= step_seconds < 60:
        raise InputError(f"step_seconds must be from 0 to 60, got {step_seconds:g}.")
    if not 1 <= seconds <= 3600:
        raise InputError(f"seconds must be from 1 to 3,600, got {seconds:g}.")


def _repeat_first(dataset: Any) -> Any:
    import tensorflow as tf

    return tf.data.Dataset.from_tensors(next(iter(dataset))).repeat()


class _Search:
    """The best settings so far, and the trials that led there."""

    def __init__(
        self,
        stages: list[ChainStage],
        step_seconds: float,
        seconds: float,
        max_cache_bytes: float,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.stages, self.step_seconds = stages, step_seconds
        self.max_cache_bytes, self.say = max_cache_bytes, say
        self.seconds = 0.5 * seconds  # for all trials but the cache's
        self.each = seconds / 14  # the seconds of one trial
        self.settings, self.trials, self.notes = TuneSettings(), [], []
        self.best = self.build(self.settings)
        self.batch_seconds = 0.0  # of the best, step included
        self.ready_seconds = 0.0  # of the same loop with ready tensors

    def build(self, settings: TuneSettings) -> Any:
        return rebuild(self.stages, settings, repeated=False)

    def measure(self, dataset: Any) -> Pace:
        """Return the middle one of three runs."""
        paces = [run_for(dataset, self.each / 3, self.step_seconds) for _ in range(3)]
        return sorted(paces, key=lambda pace: pace.images_per_second)[1]

    def run(self) -> None:
        """Try the changes one after another, while there is time and the step has to wait."""
        deadline = time.monotonic() + self.seconds
        for alternatives in self.list_changes():
            for change in alternatives:
                if self.keeps_up():
                    return self.notes.append("the step no longer waits: nothing more was tried")
                if time.monotonic() > deadline:
                    self.notes.append("the time was up before all changes were tried")
                    return self.try_cache()
                settings = replace(self.settings, **change)
                if not self.decide(settings, self.build(settings)):
                    break  # more of what didn't help isn't tried
        if not self.keeps_up():
            self.try_cache()

    def keeps_up(self) -> bool:
        """Return whether a batch takes hardly longer than one whose tensors are ready."""
        return self.batch_seconds < (1 + KEEPS_UP) * self.ready_seconds

    def list_changes(self) -> list[list[dict[str, Any]]]:
        """Return the changes to try: lists of alternatives, the next one if the last one helped."""
        kinds = {stage.kind for stage in self.stages}
        changes: list[list[dict[str, Any]]] = []
        if "read" in kinds:
            changes.append([{"read_calls": 4}, {"read_calls": 16}])
        if find_vectorizable(self.stages[1:]):
            changes.append([{"batch_first": True}])
        if "map" in kinds:
            changes.append([{"map_calls": os.cpu_count() or 2}, {"map_calls": AUTOTUNE}])
        return [*changes, [{"prefetch": 2}]]

    def decide(self, settings: TuneSettings, other: Any) -> bool:
        """Compare `other` with the best, keep it if it's better, and return whether it was."""
        seen = compare(self.best, other, self.each, self.step_seconds)
        new = [c for c in settings.changes() if c not in self.settings.changes()]
        kept = seen.ratio >= BETTER
        self.trials.append(Trial(", ".join(new), seen.ratio, kept))
        self.say(f"tried {self.trials[-1].change}: ×{seen.ratio:.2f}")
        self.batch_seconds = seen.seconds_per_batch[kept]
        if kept:
            self.settings, self.best = settings, other
        return kept

    def confirm(self, written: Any, rate: float) -> tuple[float, float]:
        """Return images per second as `written` (`rate`, measured before) and of the best.

        They are compared once more, in turns. If all changes together are no faster, the pipeline
        stays unchanged.
        """
        if self.settings == TuneSettings():
            return rate, rate
        before, after = compare(
            written, self.best, 2 * self.each, self.step_seconds
        ).images_per_second
        if after >= BETTER * before:
            return before, after
        self.settings, self.best = TuneSettings(), written
        self.notes.append("all changes together are no faster than the pipeline as written")
        return before, before

    def try_cache(self) -> None:
        """Try a cache at the last place where what is cached is the same each time."""
        if any(stage.kind == "cache" for stage in self.stages):
            return self.notes.append("there is a cache already: none was added")
        place, reason = find_cache_place(self.stages, self.settings.batch_first)
        if not place:
            return self.notes.append(f"no cache: {reason}")
        settings = replace(self.settings, cache_after=place)
        size, other = self.estimate_bytes(place), self.build(settings)
        if size is not None and size > self.max_cache_bytes:
            most = f"{self.max_cache_bytes / 1e6:,.0f} MB"
            return self.notes.append(
                f"no cache: an epoch of {size / 1e6:,.0f} MB after {place} is more than {most}"
            )
        if size is None or not run_for(other, 4 * self.each).ended:  # which fills the cache
            return self.notes.append(
                f"no cache: an epoch takes more than {4 * self.each:.0f} s; give more seconds"
            )
        self.decide(settings, other)
        if settings.batch_first and self.settings.cache_after:
            self.notes.append("the cache holds whole batches: the same examples stay together")

    def estimate_bytes(self, place: str) -> float | None:
        """Return the bytes of one epoch after `place`, None where it doesn't end in time."""
        import tensorflow as tf

        upto = [stage for stage, _ in order_stages(self.stages[1:], self.settings.batch_first)]
        end = next(i for i, stage in enumerate(upto) if stage.name == place) + 1
        settings = replace(self.settings, prefetch=0)
        names = {stage.name for stage in upto[:end]}
        kept = [s for s in self.stages if s is self.stages[0] or s.name in names]
        part = rebuild(kept, settings, repeated=False)
        first = next(iter(part))
        size = sum(_size(tensor) for tensor in tf.nest.flatten(first))
        count, deadline = 0, time.monotonic() + 4 * self.each
        for _ in part:
            count += 1
            if time.monotonic() > deadline:
                return None
        return float(size * count)


def _size(tensor: Any) -> int:
    import tensorflow as tf

    if tensor.dtype == tf.string:
        return int(tf.reduce_sum(tf.strings.length(tensor)))
    return int(tf.size(tensor)) * tensor.dtype.size


def find_cache_place(stages: list[ChainStage], batch_first: bool) -> tuple[str, str]:
    """Return (the stage after which to cache, "") or ("", why there is none).

    The last stage, in the order to run, before the first that draws at random,
    shuffles or repeats. Batches aren't cached unless they come first anyhow, and
    no more than the records as they were read aren't worth a cache.
    """
    place = ""
    for stage, _ in order_stages(stages[1:], batch_first):
        if stage.random or stage.kind in ("shuffle", "repeat", "take", "prefetch"):
            break
        if stage.kind in ("map", "filter", "read"):
            place = stage.name
        elif stage.kind == "batch" and not batch_first:
            break
    return (place, "") if place else ("", "nothing stands before the first random stage")
