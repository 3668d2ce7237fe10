"""A learner's own answer as a picture, right or wrong, under its check in JupyterLab.

Each function here draws what an answer gave for the visible examples, and nothing that the
answer didn't give. An exercise without one has no picture, nor has an answer of another form.
"""

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from distlab.exercises.closure_events import draw_events
from distlab.exercises.comparing import Digest, add_up, find_wrong
from distlab.exercises.exercise import tell_difference
from distlab.exercises.ring_trace import follow_ring
from distlab.exercises.schedule_trace import describe_schedule, find_first_wrong
from distlab.explorables import Explorable, float_line, schedule_toy
from distlab.explorables.ring import RingMessage, replay_ring
from distlab.figures import Picture, grouped_bars, images, lines, matrix, timeline
from distlab.lessons.scaled_updates import draw_updates
from utils.schedules import read_schedule

Row = tuple[str, float, float, str, str]


def draw_answer(
    lab: str, exercise: str, cases: Sequence[Any], observed: Sequence[Any], right: Sequence[Any]
) -> Picture | Explorable | None:
    """Return the picture, None if there is none.

    `observed` is what the answer gave for each of `cases`. `right` turns an update of lab 05, 7,840
    numbers, into the ratio that its check prints, and says where a replay stops.
    """
    draw = _PICTURES.get((lab, exercise))
    if draw is None:
        return None
    try:
        return draw(cases, observed, right) if draw in _COMPARED else draw(cases, observed)
    except Exception:  # whatever happens while drawing an answer, the check continues
        return None


def _cut(lane: str, sizes: Sequence[int], kinds: Sequence[str]) -> list[Row]:
    """Rows of pieces of these sizes, one behind the other; an empty piece isn't drawn."""
    ends = pairwise(accumulate(map(int, sizes), initial=0))
    return [
        (lane, start, end, str(end - start), kind)
        for (start, end), kind in zip(ends, kinds, strict=True)
        if end > start
    ]


def _cut_epochs(cases: Sequence[Any], observed: Sequence[Any]) -> Picture:
    rows = []
    for (examples, batch), (steps, last) in zip(cases, observed, strict=True):
        sizes = [batch] * (int(steps) - 1) + [int(last)]
        kinds = ["full step" if size == batch else "smaller last step" for size in sizes]
        rows += _cut(f"{examples} in batches of {batch}", sizes, kinds)
    return timeline(rows, title="Your epochs, step by step", axis="", unit="examples")


def _cut_batches(cases: Sequence[Any], observed: Sequence[Any]) -> Picture:
    rows = []
    for (batch, workers, each), sizes in list(zip(cases, observed, strict=True))[1:]:
        kinds = [f"worker {k // each}" for k in range(workers * each)]
        rows += _cut(f"{batch} on {workers} × {each}", list(sizes), kinds)
    title = "Your shares: what each replica gets of a global batch"
    return timeline(rows, title=title, axis="", unit="examples")


def _play_schedule(
    cases: Sequence[Any], observed: Sequence[Any], right: Sequence[Any]
) -> Explorable:
    """Play the first schedule whose memory or idle time differs from 1F1B's, or the first."""
    read = [
        [[(str(kind), int(micro)) for kind, micro in order] for order in orders]
        for orders in observed
    ]
    given = [describe_schedule(orders, *case) for orders, case in zip(read, cases, strict=True)]
    k = find_wrong(given, right, 1e-6)
    if k is None:
        return schedule_toy(own=read_schedule(read[0], cases[0][1]), compare=None)
    wrong = find_first_wrong(cases[k], read[k])
    return schedule_toy(own=read_schedule(read[k], cases[k][1]), compare="1f1b", wrong=wrong)


def _mark_difference(
    cases: Sequence[Any], observed: Sequence[Any], right: Sequence[Any]
) -> Picture | None:
    """Draw the first array that differs in an answer, with the number marked."""
    k = find_wrong(observed, right, 1e-6)
    table = None if k is None else tell_difference(observed[k], right[k])
    if table is None:
        return None
    numbers = [[float(cell) for cell in row] for row in table.rows]
    marked = {tuple(place) for place in table.marked}
    title = "Your answer, and the first number that is wrong"
    drawn = matrix(numbers, table.names, table.columns, title=title, marked=marked)
    return replace(drawn, caption=table.caption)


def _place(lane: str, values: Any, kind: str) -> list[Row]:
    """Rows of boxes of one width, each with its number."""
    held = np.asarray(values, dtype=float).ravel().tolist()
    return [(lane, k, k + 1, f"{value:.4g}", kind) for k, value in enumerate(held)]


def _draw_mean(cases: Sequence[Any], observed: Sequence[Any]) -> Picture:
    parts, mean = cases[0][0], observed[0]["mean"]
    rows = [row for k, part in enumerate(parts) for row in _place(f"replica {k}", part, "held")]
    rows += _place("your mean", mean, "your answer")
    title = f"What the replicas hold, and your mean, {mean:.4g}"
    return timeline(rows, title=title, axis="", unit="numbers")


def _draw_rows(cases: Sequence[Any], observed: Sequence[Any]) -> Picture:
    rows = np.atleast_2d(observed[0])
    names = [f"row {k}" for k in range(len(rows))]
    return matrix(
        rows,
        names,
        [str(k) for k in range(rows.shape[1])],
        title="The predictions you return, row by row",
    )


def _draw_arrows(cases: Sequence[Any], observed: Sequence[Any], right: Sequence[Any]) -> Picture:
    updates = {}
    for case, given, wanted in zip(cases, observed, right, strict=True):
        digest = isinstance(wanted, Digest)
        given = add_up(given) if digest else np.asarray(given, dtype=float)
        wanted = np.array(wanted.sums) if digest else np.asarray(wanted)
        ratio = float(np.sum(given * wanted) / np.sum(wanted * wanted))
        off = float(np.linalg.norm(given - ratio * wanted) / np.linalg.norm(wanted))
        updates[f"{case[1]} examples (seed {case[0]})"] = (ratio, off if off > 1e-4 else 0.0)
    return draw_updates(updates, title="Your update next to the single-device gradient")


def _replay_ring(cases: Sequence[Any], observed: Sequence[Any], right: Sequence[Any]) -> Explorable:
    """Replay the messages of the first case that went wrong, or of the first of all."""
    runs = zip(cases, observed, right, strict=True)
    replays = [replay for run in runs if (replay := follow_ring(*run))]
    found = next((replay for replay in replays if replay.moment), replays[0])
    moment = found.moment
    return replay_ring(
        found.firsts,
        [RingMessage(*message) for message in found.messages],
        finished=found.gathers,
        wrong=moment and (moment.step, moment.rank, moment.words),
    )


def _draw_tasks(cases: Sequence[Any], observed: Sequence[Any]) -> Picture:
    """Draw the cluster that each TF_CONFIG lists, with the task that it says it is."""
    rows: list[Row] = []
    for number, text in enumerate(observed):
        config = json.loads(text)
        task = config["task"]
        for job, hosts in config["cluster"].items():
            lane = f"{number}: {job}" if len(observed) > 1 else job
            rows += [
                (
                    lane,
                    k,
                    k + 1,
                    str(host),
                    "this task" if (job, k) == (task["type"], task["index"]) else "another task",
                )
                for k, host in enumerate(hosts)
            ]
    title = "The tasks in each TF_CONFIG you write, and which one it says it is"
    says = "; ".join(f"{lane} {k}: {host} ({kind})" for lane, k, _, host, kind in rows)
    return timeline(rows, title=title, axis="", unit="index", alt=f"{title}. {says}.")


def _draw_repaired(cases: Sequence[Any], observed: Sequence[Any]) -> Picture:
    return _draw_tasks(cases, observed[0])


def _draw_killed(cases: Sequence[Any], observed: Sequence[Any]) -> Picture:
    steps = list(observed[0]["steps taken"])
    series = {"your run": (list(range(1, len(steps) + 1)), steps)}
    title = "The steps worker 0 took, in order: a fall is what was trained again"
    return lines(series, x_label="step taken", y_label="number of the step", title=title)


def _draw_stale(cases: Sequence[Any], observed: Sequence[Any]) -> Picture:
    events, stale = draw_events(*cases[0]), list(observed[0])
    at = {event: place for place, event in enumerate(events)}
    rows = [
        (f"closure {k}", at["read", k], at["apply", k], f"staleness {stale[k]}", "under way")
        for k in range(len(stale))
    ]
    title = "From read to write, with the staleness that you return"
    says = "; ".join(f"{lane}: {words}" for lane, _, _, words, _ in rows)
    return timeline(rows, title=title, axis="event", unit="number", alt=f"{title}. {says}.")


def _draw_pieces(cases: Sequence[Any], observed: Sequence[Any]) -> Picture:
    pieces = observed[0]["rows and server of each piece"]
    ends = pairwise(accumulate((int(rows) for rows, _ in pieces), initial=0))
    rows = [
        (f"server {server}", start, end, f"{end - start} rows", "piece")
        for (start, end), (_, server) in zip(ends, pieces, strict=True)
    ]
    return timeline(sorted(rows), title="Where your pieces of the table lie", axis="", unit="rows")


def _draw_images(cases: Sequence[Any], observed: Sequence[Any]) -> Picture:
    epochs = observed[0]["epochs"]
    shown = np.concatenate([np.asarray(epoch["images"]) for epoch in epochs])
    return images(shown, title="The same images in each epoch of your pipeline", columns=8)


def _run_belt(cases: Sequence[Any], observed: Sequence[Any], right: Sequence[Any]) -> Picture:
    """Run four batches through the stages of the first wrong case, and put the answer below."""
    k = find_wrong(observed, right, 1e-6) or 0
    (stages, batch, overlapped), each_ms = cases[k], 1e3 * cases[k][1] / float(observed[k])
    ends, leaves, rows = [0.0] * len(stages), [], []
    for number in range(4):
        now = 0.0 if overlapped else ends[-1]
        for stage, seconds in enumerate(stages):
            start = max(now, ends[stage])
            now = ends[stage] = start + 1e3 * seconds
            rows.append((f"stage {stage + 1}", start, now, str(number), f"batch {number}"))
        leaves.append(now)
    shown_ms = min(each_ms, leaves[-1])  # a rate far too low would leave no room for the belt
    for number in range(1, 4):
        start = leaves[0] + (number - 1) * shown_ms
        rows.append(("your rate", start, start + shown_ms, str(number), f"batch {number}"))
    title = f"The belt {'with' if overlapped else 'without'} prefetch, and the rate you predict"
    caption = (
        f"A batch of {batch} leaves the last stage every {leaves[-1] - leaves[-2]:.3g} ms. "
        f"By your rate, {float(observed[k]):,.0f} images/s, one leaves every {each_ms:.3g} ms."
    )
    drawn = timeline(rows, title=title, unit="ms", alt=f"{title}. {caption}")
    return replace(drawn, caption=caption)


def _compare_speed_ups(
    cases: Sequence[Any], observed: Sequence[Any], right: Sequence[Any]
) -> Picture:
    """Put each predicted speed-up next to the expected one, which others measured for most runs."""
    groups = {
        f"{devices} GPUs, {parameters / 1e6:.0f} M parameters": {
            "your prediction": float(given),
            "expected": float(wanted),
            "if nobody waited": float(devices),
        }
        for (_, _, parameters, devices), given, wanted in zip(cases, observed, right, strict=True)
    }
    return grouped_bars(groups, unit="x", title="Your speed-ups, next to the expected ones")


def _draw_calls(cases: Sequence[Any], observed: Sequence[Any]) -> Picture:
    rows = {
        f"cache after {case[2]}" if case[2] != "nothing" else "no cache": list(map(int, found))
        for case, found in zip(cases, observed, strict=True)
    }
    title = f"Calls you count in {cases[0][1]} epochs of {cases[0][0]:,} examples"
    return matrix(list(rows.values()), list(rows), ["parse", "augment"], title=title, format="{:,}")


def _draw_plans(cases: Sequence[Any], observed: Sequence[Any]) -> Picture:
    rows: list[Row] = []
    for number, (case, plan) in enumerate(zip(cases, observed, strict=True)):
        lane = f"{number}: {plan['micro_batches']} micro-batches" if plan else f"{number}: no plan"
        again = set(plan["recomputed"]) if plan else set()
        ends = pairwise(accumulate((block[0] for block in case[1]), initial=0))
        kind = "kept" if plan else "no plan"
        rows += [
            (lane, start, end, str(end - start), "recomputed" if k in again else kind)
            for k, (start, end) in enumerate(ends)
        ]
    title = "Your plans: which blocks' activations are kept"
    return timeline(rows, title=title, axis="", unit="bytes for each example")


def _slide_gradients(cases: Sequence[Any], observed: Sequence[Any]) -> Explorable:
    """Slide the gradients of the case with the outlier by the scale that the answer chose."""
    lab13 = importlib.import_module("distlab.labs.lab13.exercise")
    seed, replicas, _, outlier = cases[1]
    gradients = np.concatenate([g.ravel() for g in lab13.draw_gradients(seed, replicas, outlier)])
    return float_line(gradients, scale=float(observed[1]["scale"]))


def _draw_runs(cases: Sequence[Any], observed: Sequence[Any]) -> Picture:
    table = [found["examples through each block"] for found in observed]
    names = [f"{case[1]} micro-batches" for case in cases]
    columns = [f"block {k}" for k in range(len(table[0]))]
    title = "How many examples went through each of your blocks"
    return matrix(table, names, columns, title=title)


_PICTURES: Mapping[tuple[str, str], Callable[..., Picture]] = {
    ("lab01", "epoch"): _cut_epochs,
    ("lab01", "batches"): _cut_batches,
    ("lab02", "moments"): _draw_mean,
    ("lab02", "predict"): _draw_rows,
    **{("lab05", name): _draw_arrows for name in ("plain", "weighted", "clipped", "uneven")},
    **{("lab06", name): _replay_ring for name in ("scatter", "gather", "all-reduce")},
    ("lab07", "worker"): _draw_tasks,
    ("lab07", "role"): _draw_tasks,
    ("lab07", "repair"): _draw_repaired,
    ("lab09", "killed"): _draw_killed,
    ("lab10", "partitioner"): _draw_pieces,
    ("lab10", "staleness"): _draw_stale,
    ("lab11", "pipeline"): _draw_images,
    ("lab11", "rate"): _run_belt,
    ("lab11", "calls"): _draw_calls,
    **{("lab12", name): _mark_difference for name in ("columns", "rows", "sharded")},
    ("lab12", "schedule"): _play_schedule,
    ("lab13", "plan"): _draw_plans,
    ("lab13", "gradients"): _draw_runs,
    ("lab13", "scale"): _slide_gradients,
    ("lab14", "measured"): _compare_speed_ups,
    **{("lab16", name): _mark_difference for name in ("zero", "merge", "dispatch")},
}
_COMPARED = (
    _draw_arrows,
    _mark_difference,
    _replay_ring,
    _play_schedule,
    _run_belt,
    _compare_speed_ups,
)
