"""The stages of a chain, done again with other settings: as a dataset, and as code to paste."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import InputError
from .chain import ChainStage, name_of

AUTOTUNE = -1  # tf.data.AUTOTUNE


@dataclass(frozen=True)
class TuneSettings:
    """Changes to a chain of stages; the default leaves it as written.

    `read_calls`: shards read at the same time. `map_calls`: calls of each map at
    the same time (-1: AUTOTUNE). `batch_first`: maps with a batch form run on whole
    batches. `cache_after`: the name of the stage whose results are kept in memory.
    `prefetch`: batches made ahead of the step (-1: AUTOTUNE).
    """

    read_calls: int = 0
    map_calls: int = 0
    batch_first: bool = False
    cache_after: str = ""
    prefetch: int = 0

    def changes(self) -> list[str]:
        """Return the settings that differ from the default, in words."""
        words = {
            "read_calls": f"{_number(self.read_calls)} shards read at once",
            "map_calls": f"{_number(self.map_calls)} calls of each map at once",
            "batch_first": "whole batches in the maps",
            "cache_after": f"cache after {self.cache_after}",
            "prefetch": f"prefetch {_number(self.prefetch)}",
        }
        return [text for name, text in words.items() if getattr(self, name)]


@dataclass(frozen=True)
class ChainStep:
    """One stage to do: the stage that it stands for, the code, and the function that does it."""

    name: str
    code: str
    apply: Callable[[Any], Any]


def rebuild(stages: list[ChainStage], settings: TuneSettings, repeated: bool = True) -> Any:
    """Return the dataset of `stages` with `settings`; without its `repeat` if not `repeated`.

    Raises InputError for a cache after a stage that isn't there.
    """
    dataset = stages[0].dataset
    for step in plan(stages, settings, repeated):
        dataset = step.apply(dataset)
    return dataset


def write_code(stages: list[ChainStage], settings: TuneSettings) -> str:
    """Return the rebuilt chain as lines of Python, with the names of the reader's own functions."""
    source = stages[0]
    numbers = (settings.read_calls, settings.map_calls, settings.prefetch)
    lines = ["AUTOTUNE = tf.data.AUTOTUNE"] if AUTOTUNE in numbers else []
    if source.dataset is not None:
        lines.append(f"dataset = ...  # your source as it is: {source.name}")
    lines += [f"dataset = {step.code}" for step in plan(stages, settings, repeated=True)]
    return "\n".join(lines)


def plan(stages: list[ChainStage], settings: TuneSettings, repeated: bool) -> list[ChainStep]:
    """Return what to do after the source, in order."""
    steps: list[ChainStep] = []
    cached = False
    for stage, in_batches in order_stages(stages[1:], settings.batch_first):
        if stage.kind == "repeat" and not repeated:
            continue
        if stage.kind == "prefetch" and settings.prefetch:
            continue
        steps.append(_make_step(stage, settings, in_batches))
        if stage.name == settings.cache_after:
            steps.append(ChainStep("cache", "dataset.cache()", lambda dataset: dataset.cache()))
            cached = True
    if settings.cache_after and not cached:
        names = ", ".join(stage.name for stage in stages[1:])
        raise InputError(f"cache_after must be one of {names}, got {settings.cache_after!r}.")
    if settings.prefetch:
        code = f"dataset.prefetch({_number(settings.prefetch)})"
        steps.append(
            ChainStep("prefetch", code, lambda dataset: dataset.prefetch(settings.prefetch))
        )
    return steps


def order_stages(stages: list[ChainStage], batch_first: bool) -> list[tuple[ChainStage, bool]]:
    """Return the stages in the order to run them, each with whether it works on whole batches.

    With `batch_first`, the batch moves before the maps that stand directly before
    it and have a batch form.
    """
    place = find_vectorizable(stages) if batch_first else None
    if place is None:
        return [(stage, False) for stage in stages]
    first, batch = place
    before, maps, after = stages[:first], stages[first:batch], stages[batch + 1 :]
    ordered = [(stage, False) for stage in before] + [(stages[batch], False)]
    return ordered + [(stage, True) for stage in maps] + [(stage, False) for stage in after]


def find_vectorizable(stages: list[ChainStage]) -> tuple[int, int] | None:
    """Return (first map, batch) of the run of maps with batch forms before the batch, or None."""
    kinds = [stage.kind for stage in stages]
    if kinds.count("batch") != 1:
        return None
    batch = first = kinds.index("batch")
    while first and stages[first - 1].kind == "map" and stages[first - 1].batch_form:
        first -= 1
    return (first, batch) if first < batch else None


def _make_step(stage: ChainStage, settings: TuneSettings, in_batches: bool) -> ChainStep:
    if stage.kind == "map":
        return _make_map(stage, settings.map_calls, in_batches)
    if stage.kind == "read":
        return _make_read(stage, settings.read_calls)
    old = stage.dataset
    if stage.kind == "filter":
        code = f"dataset.filter({_code_name(stage.function)})"
        return ChainStep(stage.name, code, lambda dataset: dataset.filter(stage.function))
    if stage.kind == "batch":
        size, drop = int(old._batch_size), bool(old._drop_remainder)
        calls = getattr(old, "_num_parallel_calls", None)
        calls = None if calls is None else int(calls)
        code = f"dataset.batch({size}{', drop_remainder=True' if drop else ''})"
        return ChainStep(
            stage.name, code, lambda d: d.batch(size, drop_remainder=drop, num_parallel_calls=calls)
        )
    return _make_plain(stage)


def _make_plain(stage: ChainStage) -> ChainStep:
    """Return the step of a stage that takes at most a number."""
    old = stage.dataset
    if stage.kind == "shuffle":
        size, anew = int(old._buffer_size), old._reshuffle_each_iteration
        seeded = int(old._seed) or int(old._seed2)  # several workers need one order
        seed = int(old._seed2) if seeded else None
        code = f"dataset.shuffle({size}{f', seed={seed}' if seeded else ''})"
        return ChainStep(
            stage.name, code, lambda d: d.shuffle(size, seed, reshuffle_each_iteration=anew)
        )
    if stage.kind == "cache":
        file = old._filename.numpy().decode()
        return ChainStep(stage.name, f"dataset.cache({file!r})", lambda d: d.cache(file))
    if stage.kind == "options":
        given = old.options()
        code = "dataset.with_options(options)  # yours"
        return ChainStep(stage.name, code, lambda d: d.with_options(given))
    count = int(old._buffer_size if stage.kind == "prefetch" else old._count)
    code = f"dataset.{stage.kind}({'' if count == -1 else count})"
    return ChainStep(stage.name, code, lambda d: getattr(d, stage.kind)(count))


def _make_map(stage: ChainStage, calls: int, in_batches: bool) -> ChainStep:
    function = stage.batch_form if in_batches else stage.function
    own = getattr(stage.dataset, "_num_parallel_calls", None)
    number = calls or (None if own is None else int(own))
    code = f"dataset.map({_code_name(function)}{_calls(number)})"
    return ChainStep(stage.name, code, lambda dataset: dataset.map(function, number))


def _make_read(stage: ChainStage, calls: int) -> ChainStep:
    old = stage.dataset
    if stage.function is None:  # TFRecordDataset(file names)
        return _make_file_reader(stage, calls)
    own = getattr(old, "_num_parallel_calls", None)
    number = calls or (None if own is None else int(own))
    name = _code_name(stage.function)
    if number is None and type(old).__name__ == "_FlatMapDataset":
        return ChainStep(
            stage.name, f"dataset.flat_map({name})", lambda d: d.flat_map(stage.function)
        )
    cycle = int(getattr(old, "_cycle_length", calls))
    block = int(getattr(old, "_block_length", 1))
    code = f"dataset.interleave({name}, cycle_length={_number(cycle)}{_calls(number)})"
    return ChainStep(
        stage.name,
        code,
        lambda d: d.interleave(stage.function, cycle, block, num_parallel_calls=number),
    )


def _make_file_reader(stage: ChainStage, calls: int) -> ChainStep:
    import tensorflow as tf

    old = stage.dataset
    number = calls or getattr(old, "_num_parallel_reads", None)
    arguments = (old._filenames, old._compression_type, old._buffer_size)
    code = "tf.data.TFRecordDataset(files"
    code += f", num_parallel_reads={_number(number)})" if number else ")"
    return ChainStep(stage.name, code, lambda dataset: tf.data.TFRecordDataset(*arguments, number))


def _calls(number: int | None) -> str:
    return "" if number is None else f", num_parallel_calls={_number(number)}"


def _number(number: int) -> str:
    return "AUTOTUNE" if number == AUTOTUNE else str(number)


def _code_name(function: Any) -> str:
    name = name_of(function)
    if name == "TFRecordDataset":
        return "tf.data.TFRecordDataset"
    return "your_lambda" if name == "lambda" else name
