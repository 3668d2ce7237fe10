"""A job on the axis of time: from the tasks' stories to what is drawn: spans, flags, lost parts."""

from collections.abc import Mapping, Sequence

from distlab.figures.lanes import Flag
from utils.goodput import StepGroup, TaskSpan, TaskStory, is_lost

MAX_DRAWN, MIN_WAIT_SECONDS = 400, 0.05  # steps of a task


def list_spans(story: TaskStory, group: StepGroup, since: float, now: float) -> list[TaskSpan]:
    """Return what the task did from `since` to `now`.

    More than MAX_DRAWN steps are drawn in bundles, each with the sums of its steps. Short waits
    between them are left out.
    """
    spans = [span for span in story.closed if span.end >= since]
    if len(spans) > MAX_DRAWN:
        spans = [s for s in spans if s.kind != "wait" or s.end - s.start >= MIN_WAIT_SECONDS]
    parts = [(step.began, *group.split(step)) for step in story.list_steps(since)]
    size = -(-len(parts) // MAX_DRAWN) or 1
    for first in range(0, len(parts), size):
        bundle = parts[first : first + size]
        begin = bundle[0][0]
        for place, kind in enumerate(("compute", "wait", "send"), start=1):
            end = begin + sum(part[place] for part in bundle)
            spans.append(TaskSpan(begin, end, kind))
            begin = end
    return [span for span in spans + story.find_open(now) if span.end > span.start]


def list_lost(story: TaskStory, restored: Mapping[int, int]) -> list[tuple[float, float]]:
    """Return (start, end) of training that was lost later: `restored` is attempt -> its step."""
    lost: dict[int, tuple[float, float]] = {}
    for step in story.steps:
        if is_lost(step, restored):
            start, _ = lost.get(step.attempt, (step.began, 0.0))
            lost[step.attempt] = (start, step.ended)
    return list(lost.values())


def list_flags(
    saved: Sequence[tuple[float, int]], restored: Mapping[int, int], starts: Mapping[int, float]
) -> list[Flag]:
    """Return the checkpoints, (time, step) each. The one that each restart began at is used."""
    used = set()
    for attempt, step in restored.items():
        times = [t for t, s in saved if s == step and t < starts.get(attempt, 0.0)]
        used |= {max(times)} if times else set()
    return [Flag(time, step, time in used) for time, step in saved]
