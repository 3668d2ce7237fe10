"""Trace when each stage works, by clock readings inside a running pipeline.

`trace` rebuilds a chain of stages with stamps. Every function of a map reads the clock
(`tf.timestamp`) before and after its work, on whichever thread it runs. Around the
reading of a shard, a clock stands before the request and after the answer. The
readings travel with the elements through shuffles, batches and caches, and come out
with the batches. Nothing is drawn by hand, and nothing is estimated.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import InputError
from .chain import ChainStage, as_written, take_apart
from .rebuild import TuneSettings, rebuild

MAX_LANES, GAP_SECONDS = 8, 5e-4
Row = tuple[str, float, float, str, str]  # lane, start, end, label, kind: as figures.timeline takes


@dataclass(frozen=True)
class WorkSpan:
    """One piece of work: the stage, and its begin and end in seconds since the first of all."""

    stage: str
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


def trace(dataset: Any, steps: int, step_seconds: float = 0.0) -> list[WorkSpan]:
    """Run `steps` batches of `dataset`, a sleep as the step after each, and return all spans.

    Stages are "read", the names of the maps' functions, "wait" (the loop waits for a
    batch) and "step". Spans that began before the trace (from a cache) are left out.
    Raises InputError for a dataset with fewer batches, and for one without a stage
    that can be stamped.
    """
    stages = take_apart(dataset)
    if not any(stage.kind in ("read", "map") and stage.function for stage in stages):
        raise InputError("The dataset must have a stage that reads or maps, got neither.")
    stamped = as_written(rebuild(_stamp_stages(stages), TuneSettings()))
    begun, spans = time.time(), []
    elements = iter(stamped)
    for step in range(steps):
        asked = time.time()
        batch = next(elements, None)
        if batch is None:
            raise InputError(
                f"The dataset must have at least {steps} batches, got {step}. Give fewer steps."
            )
        got = time.time()
        time.sleep(step_seconds)
        spans += [WorkSpan("wait", asked, got), WorkSpan("step", got, time.time())]
        spans += _read_stamps(batch[1])
    spans = [span for span in spans if span.start >= begun]
    spans.sort(key=lambda span: span.start)
    first = spans[0].start
    return [WorkSpan(span.stage, span.start - first, span.end - first) for span in spans]


def _read_stamps(stamps: dict[str, Any]) -> list[WorkSpan]:
    spans = []
    for name, times in stamps.items():
        pairs = times.numpy().reshape(-1, 2)
        spans += [WorkSpan(name, float(start), float(end)) for start, end in pairs if end > 0]
    return spans


def _stamp_stages(stages: list[ChainStage]) -> list[ChainStage]:
    """Return the stages with functions that hand on (element, stamps)."""
    stamped, started = [], False
    for stage in stages:
        function = stage.function
        if stage.kind == "read" and function and not started:
            function, started = _stamp_reading(stage.function), True
        elif stage.kind == "map":
            function, started = _stamp_map(stage, started), True
        elif stage.kind == "filter":
            function = _pass_element(stage.function)
        stamped.append(ChainStage(stage.kind, stage.name, stage.dataset, function, stage.random))
    return stamped


def _stamp_reading(read: Callable[..., Any]) -> Callable[..., Any]:
    """Return `read` with a clock before each request for a record and one after its answer."""

    def read_with_clock(*arguments: Any) -> Any:
        import tensorflow as tf

        asked = tf.data.Dataset.counter().map(lambda _: tf.timestamp())
        pairs = tf.data.Dataset.zip((asked, read(*arguments)))
        return pairs.map(lambda begun, record: (record, {"read": _finish(begun, [record])}))

    return read_with_clock


def _finish(begun: Any, results: list[Any]) -> Any:
    """Return [begun, now], now being read after `results` are there."""
    import tensorflow as tf

    with tf.control_dependencies(tf.nest.flatten(results)):
        return tf.stack([begun, tf.timestamp()])


def _stamp_map(stage: ChainStage, started: bool) -> Callable[..., Any]:
    function, name = stage.function, stage.name.removeprefix("map ")

    def run_with_clock(*arguments: Any) -> Any:
        import tensorflow as tf

        element, stamps = arguments if started else (arguments, {})
        element = element if isinstance(element, tuple) else (element,)
        begun = tf.timestamp()
        with tf.control_dependencies([begun]):
            inputs = tf.nest.map_structure(tf.identity, element)
            result = function(*inputs)
        return result, {**stamps, name: _finish(begun, [result])}

    return run_with_clock


def _pass_element(predicate: Callable[..., Any]) -> Callable[..., Any]:
    return lambda element, stamps: predicate(
        *(element if isinstance(element, tuple) else (element,))
    )


def timeline_rows(spans: list[WorkSpan], stages: list[str]) -> list[Row]:
    """Return spans as rows of `figures.timeline`, in milliseconds, stages in the order given.

    Overlapping spans of a stage get separate lanes, at most MAX_LANES for a
    stage: "read", "read 2"... Spans of one lane less than GAP_SECONDS apart are one bar.
    """
    rows: list[Row] = []
    for stage in stages:
        free: list[float] = []  # when each lane is free again
        bars: list[list[list[float]]] = []
        for span in (s for s in spans if s.stage == stage):
            lane = next((i for i, end in enumerate(free) if end <= span.start + 1e-6), len(free))
            if lane == len(free):
                free.append(0.0)
                bars.append([])
            if bars[lane] and span.start - bars[lane][-1][1] < GAP_SECONDS:
                bars[lane][-1][1] = span.end
            else:
                bars[lane].append([span.start, span.end])
            free[lane] = span.end
        for lane, pieces in enumerate(bars[:MAX_LANES]):
            name = stage if not lane else f"{stage} {lane + 1}"
            rows += [(name, 1e3 * start, 1e3 * end, "", stage) for start, end in pieces]
    return rows
