"""Pictures and explorers of what replicas share: a cluster, its pace, its memory.

Used by the lesson on why one distributes. Everything is computed from what the caller gives.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from distlab.errors import CourseError
from distlab.explorables.controls import Slider
from distlab.explorables.explorer import Explorer, Try, explore
from distlab.figures import (
    Arrow,
    Box,
    Picture,
    diagram,
    grouped_bars,
    timeline,
)
from distlab.figures.canvas import WIDTH_PX, say_number
from utils.data import split_batch
from utils.measure import count

MEBIBYTE = 2**20
GAP_PX = 14.0
WAY_PX = 256.0
UNTIL_SECONDS, MAX_STEPS = 12.0, 24

Row = tuple[str, float, float, str, str]


def draw_cluster(workers: int = 2, replicas_per_worker: int = 2) -> Picture:
    """Draw workers as frames, the replicas on their devices inside, and the all-reduce below.

    Takes 1 to 4 workers of 1 to 4 replicas, 4 replicas in all at most (more do
    not fit the page). Raises CourseError otherwise.
    """
    replicas = workers * replicas_per_worker
    if min(workers, replicas_per_worker) < 1 or replicas > 4:
        raise CourseError(
            "workers times replicas_per_worker must be 1 to 4 replicas, got "
            f"{workers} x {replicas_per_worker}."
        )
    text = "all-reduce: every replica gets the sum of all gradients"
    boxes = {"sum": Box(text, 0, 212, WIDTH_PX, 40, "reduce")}
    arrows = []
    wide = (WIDTH_PX - GAP_PX * (workers - 1)) / workers
    inside = (wide - GAP_PX) / replicas_per_worker - GAP_PX
    for worker in range(workers):
        left = worker * (wide + GAP_PX)
        title = f"worker {worker}: one process"
        boxes[f"worker {worker}"] = Box(title, left, 34, wide, 126)
        for device in range(replicas_per_worker):
            name = f"replica {worker * replicas_per_worker + device}"
            x = left + GAP_PX + device * (inside + GAP_PX)
            boxes[name] = Box(f"{name}\non GPU:{device}", x, 68, inside, 80, "compute")
            arrows.append(Arrow(name, "sum", "gradients", both=True, label_at=0.6))
    alt = (
        f"{count(workers, 'worker')}, each one process with {count(replicas_per_worker, 'device')} "
        "and a replica on each. All replicas hand their gradients to one all-reduce, which gives "
        "every replica the sum."
    )
    title = f"{count(workers, 'worker')} of {count(replicas_per_worker, 'replica')} each"
    return diagram(boxes, arrows, title=title, alt=alt, height_px=258)


def draw_two_ways(examples: int = 64, inputs: int = 784, units: int = 128) -> Picture:
    """Draw one layer split over four devices by batch, and by weights: who holds and sends what.

    `inputs` x `units` is the shape of the layer's weights. Raises CourseError
    unless examples and units divide by four.
    """
    if examples % 4 or units % 4 or min(examples, inputs, units) < 1:
        raise CourseError(
            f"examples and units must be multiples of 4, and inputs at least 1, got {examples}, "
            f"{units} and {inputs}."
        )
    ways = {
        "Data parallel: cut the batch": (
            f"{examples // 4} images",
            f"{inputs} × {units}",
            f"{examples // 4} × {units}",
            f"all-reduce: the gradients of {inputs} × {units} weights, once a step",
        ),
        "Model parallel: cut the weights": (
            f"all {examples} images",
            f"{inputs} × {units // 4}",
            f"{examples} × {units // 4}",
            f"all-gather: outputs of {examples} × {units}, before the next layer can begin",
        ),
    }
    boxes, arrows = {}, []
    for row, (name, words) in enumerate(ways.items()):
        top = 32 + WAY_PX * row
        boxes[name] = Box(name, 0, top, WIDTH_PX, 24, "text")
        for device in range(4):
            key = f"{name} {device}"
            boxes |= _draw_device(key, device, top + 28, *words[:3])
            arrows.append(Arrow(key, f"{name} sends", both=True))
        boxes[f"{name} sends"] = Box(words[3], 0, top + 206, WIDTH_PX, 34, "reduce")
    alt = (
        f"One layer of {inputs} × {units} weights on four devices. Data parallel: each device has "
        f"{examples // 4} of {examples} images and all weights, and an all-reduce adds up the "
        f"gradients once a step. Model parallel: each device has all {examples} images and "
        f"{inputs} × {units // 4} of the weights, and an all-gather puts the outputs together."
    )
    title = "One layer on four devices, and what travels between them"
    return diagram(boxes, arrows, title=title, alt=alt, height_px=32 + 2 * WAY_PX - 6)


def _draw_device(
    key: str, device: int, top: float, images: str, weights: str, outputs: str
) -> dict[str, Box]:
    """Return the boxes of one of four devices: its frame, its images, weights and outputs."""
    wide = (WIDTH_PX - 3 * GAP_PX) / 4
    x = device * (wide + GAP_PX)
    inside = {"x": x + 14, "width": wide - 28, "height": 32}
    return {
        key: Box(f"CPU:{device}", x, top, wide, 146),
        f"{key} data": Box(images, y=top + 30, kind="data", **inside),
        f"{key} weights": Box(f"{weights} weights", y=top + 68, kind="variables", **inside),
        f"{key} outputs": Box(f"{outputs} outputs", y=top + 106, kind="compute", **inside),
    }


def pace_rows(
    synchronous: bool, step_seconds: Sequence[float], until_seconds: float, vary: float = 0.0
) -> list[Row]:
    """Return when each worker computes and waits, as rows for `figures.timeline`.

    `step_seconds` has one number a worker. Synchronous workers all begin a step
    when the slowest has ended the one before; asynchronous ones never wait.
    Each step takes up to the share `vary` more or less, the same in all calls. Only gradients that
    are ready by `until_seconds` are listed.
    """
    luck = np.random.default_rng(0).uniform(-1, 1, (MAX_STEPS, len(step_seconds)))
    own = np.multiply(step_seconds, 1 + vary * luck)  # [step, worker]
    periods = np.broadcast_to(own.max(axis=1, keepdims=True), own.shape) if synchronous else own
    ends = periods.cumsum(axis=0)
    rows: list[Row] = []
    for step, worker in np.ndindex(own.shape):
        lane, end = f"{'sync' if synchronous else 'async'}, worker {worker}", ends[step, worker]
        begin = end - periods[step, worker]
        ready = begin + own[step, worker]
        if end <= until_seconds + 1e-9:
            rows.append((lane, begin, ready, str(step + 1), "computes"))
            if end > ready + 1e-9:
                rows.append((lane, ready, end, "", "waits"))
    return rows


def pace_explorer(slow_seconds: float = 2.0) -> Explorer:
    """Show three workers and a slower one for twelve seconds, synchronous and asynchronous."""
    even, slow, varied = (_count_ready(_list_both(*each)) for each in ((1, 0), (4, 0), (1, 50)))
    return explore(
        show_pace,
        tries=[
            Try(
                "Four equal workers whose steps vary by 50 %: who waits now?",
                {"slow_seconds": 2, "vary_percent": 0},
                {"slow_seconds": 1, "vary_percent": 50},
                "All of them, now and then. No worker is slow on average, and still waiting leaves "
                f"{varied[0]} gradients of {even[0]}. Each step waits for the worker that "
                "happens to be last.",
            ),
            Try(
                "One worker is 4 times slower: what does waiting cost?",
                {"slow_seconds": 1, "vary_percent": 0},
                {"slow_seconds": 4},
                f"{slow[0]} gradients are left of {even[0]}. Where nobody waits, it's "
                f"{slow[1]}, and they're stale.",
            ),
            Try(
                "Every worker takes exactly 1 s: what is it worth not to wait?",
                {"slow_seconds": 2, "vary_percent": 0},
                {"slow_seconds": 1},
                f"Nothing: {even[0]} gradients with an all-reduce, {even[1]} without.",
            ),
        ],
        slow_seconds=Slider("Step of the slow worker", 1, 4, slow_seconds, 0.5, "s", (1, 2, 3, 4)),
        vary_percent=Slider("Each step varies by", 0, 50, 0, 25, "%"),
    )


def _list_both(slow_seconds: float, vary_percent: float) -> list[list[Row]]:
    """Return the rows of three workers and a slower one: synchronous, asynchronous."""
    steps = (1.0, 1.0, 1.0, slow_seconds)
    return [pace_rows(kind, steps, UNTIL_SECONDS, vary_percent / 100) for kind in (True, False)]


def _count_ready(both: list[list[Row]]) -> list[int]:
    return [sum(row[4] == "computes" for row in rows) for rows in both]


def show_pace(slow_seconds: float, vary_percent: float = 0) -> Picture:
    """Return the timeline of four workers. The last one needs `slow_seconds` per step."""
    both = _list_both(slow_seconds, vary_percent)
    waiting, free = _count_ready(both)
    words = (
        f"Gradients ready after {say_number(UNTIL_SECONDS)} s: {waiting} with an all-reduce, "
        f"where all wait for the slowest, {free} where nobody waits."
    )
    title = f"Four workers, one of which needs {say_number(slow_seconds)} s instead of 1 s"
    if slow_seconds == 1:
        title = "Four workers, and each needs about 1 s" if vary_percent else "Four equal workers"
    picture = timeline(sum(both, []), title=title).with_ideas(
        {"computes": "forward", "waits": "wait"}
    )
    return replace(picture, caption=words)


KEPT_IDEAS = ("variables", "backward", "optimizer")  # of weights, gradients, optimizer state


def show_memory(
    kept_bytes: Mapping[str, int],
    activation_bytes_per_image: int,
    replicas: int,
    global_batch_size: int,
) -> Picture:
    """Return bars in MiB for the device with the largest share of the batch.

    Mirrored, and with all state sharded over the replicas, as ZeRO's third stage
    and FSDP do: each device keeps 1 / replicas of it.
    """
    images = max(split_batch(global_batch_size, replicas))
    activations = images * activation_bytes_per_image
    kept = sum(kept_bytes.values())
    kept_share = 100 * kept / (kept + activations)
    words = (
        f"{count(images, 'image')} of {global_batch_size} on this device: "
        f"{say_number((kept + activations) / MEBIBYTE)} MiB mirrored. {say_number(kept_share)} % "
        "of it is kept on every device, however many replicas there are. Sharded: "
        f"{say_number((kept / replicas + activations) / MEBIBYTE)} MiB."
    )
    groups = {
        name: {
            part: size / MEBIBYTE
            for part, size in {
                **{key: value / shards for key, value in kept_bytes.items()},
                "activations": activations,
            }.items()
        }
        for name, shards in {"mirrored": 1, "sharded (ZeRO-3, FSDP)": replicas}.items()
    }
    title = f"Memory of one device of {count(replicas, 'replica')}"
    ideas = {**dict(zip(kept_bytes, KEPT_IDEAS)), "activations": "forward"}
    picture = grouped_bars(groups, unit="MiB", title=title).with_ideas(ideas)
    return replace(picture, caption=words)
