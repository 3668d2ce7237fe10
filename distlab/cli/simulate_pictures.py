"""What `--plot` draws for each question of `distlab simulate`, and how it is written."""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from distlab import figures
from distlab.cli.parser import OneLineParser
from distlab.errors import CourseError
from distlab.figures import Picture
from utils.collectives import ALGORITHMS
from utils.measure import format_bytes
from utils.simulate.memory import STAGES
from utils.simulate.questions import (
    AllReduce,
    Failures,
    Memory,
    ParameterServer,
    PipelineQuestion,
    StepQuestion,
)

PICTURE_SIZES = [1 << power for power in range(10, 34, 2)]  # 1 KiB to 4 GiB
MAX_OPERATIONS, MAX_BUCKETS = 6_000, 400


def add_picture(parser: OneLineParser, shows: str) -> None:
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help=f"draw {shows}")


def show_answer(
    arguments: argparse.Namespace, told: Any, tabulate: Callable[[], str], draw: Callable
) -> int:
    """Draw with --plot, then print what is `told`: as JSON with --json, else as text."""
    if arguments.plot:
        write_picture(arguments.plot, draw)
    print(json.dumps(told) if arguments.json else tabulate())
    return 0


def write_picture(path: Path, make: Callable[[], Picture]) -> None:
    """Write the picture that `make` draws to `path` as SVG. Raises CourseError if that fails."""
    if path.suffix.lower() != ".svg":
        raise CourseError(f"--plot must be a name that ends in .svg, got {path}.")
    picture = make()
    try:
        path.write_text(picture.svg + "\n", encoding="utf-8")
    except OSError as error:
        raise CourseError(
            f"--plot {path} can't be written ({error.strerror}). Name another file."
        ) from None
    print(f"picture: {path}", file=sys.stderr)


def draw_step(asked: StepQuestion) -> Picture:
    """Return compute and network of one step as a timeline."""
    step = asked.simulate()
    if len(step.ends) > MAX_BUCKETS:
        raise CourseError(
            f"--plot: {len(step.ends):,} buckets are too many to draw. Choose larger buckets "
            f"(at most {MAX_BUCKETS} of them)."
        )
    longest = step.step_seconds
    units = ((1, "s"), (1e3, "ms"), (1e6, "us"))
    scale, unit = next(u for u in units if longest * u[0] >= 1 or u[0] == 1e6)
    rows = [(lane, a * scale, b * scale, label, kind) for lane, a, b, label, kind in step.rows()]
    return figures.timeline(rows, title=f"One step of {step.devices:,} devices", unit=unit)


def draw_all_reduce(asked: AllReduce) -> Picture:
    """Return time against bytes for every algorithm that the links allow."""
    if asked.ranks == 1:
        raise CourseError("--plot: one rank sends nothing, so there is nothing to draw.")
    marked = [asked.bytes] if asked.bytes else []
    sizes = sorted({*marked, *PICTURE_SIZES})
    names = [name for name in ALGORITHMS if asked.ranks_per_node or name != "hierarchical"]
    curves = {
        name: ([n / 2**20 for n in sizes], [asked.simulate(name, n).seconds * 1e3 for n in sizes])
        for name in names
    }
    return figures.lines(
        curves,
        x_label="MiB per rank",
        y_label="milliseconds",
        log_x=True,
        log_y=True,
        title=f"All-reduce over {asked.ranks:,} ranks",
        marks={f"{asked.algorithm}, {format_bytes(n)}": n / 2**20 for n in marked},
    )


def draw_pipeline(asked: PipelineQuestion) -> Picture:
    """Return the schedule as a timeline."""
    run = asked.simulate()
    if len(run.starts) > MAX_OPERATIONS:
        raise CourseError(
            f"--plot: {len(run.starts):,} operations are too many to draw. Choose fewer stages "
            f"or micro-batches (at most {MAX_OPERATIONS:,} operations)."
        )
    title = f"{asked.schedule}, {asked.stages} stages, {asked.micro_batches} micro-batches"
    return figures.timeline(run.rows(), title=title, unit="")


def draw_staleness(asked: ParameterServer) -> Picture:
    """Return the share of updates by staleness."""
    counts = Counter(asked.simulate().staleness)
    stale, total = sorted(counts), sum(counts.values())
    return figures.lines(
        {"updates": (stale, [100 * counts[number] / total for number in stale])},
        x_label="other updates in between",
        y_label="% of updates",
        title=f"How stale the updates of {asked.workers:,} asynchronous workers are",
    )


def draw_failures(asked: Failures) -> Picture:
    """Return the time that trains against the interval, with the chosen interval marked."""
    best = asked.answer()["optimal_interval_seconds"]
    chosen = asked.interval_seconds or best
    tried = np.geomspace(min(best, chosen) / 10, max(best, chosen) * 10, 120)
    share = [100 * asked.find_effective(float(seconds)) for seconds in tried]
    return figures.lines(
        {"time that trains": (tried / 60, share)},
        x_label="minutes between checkpoints",
        y_label="% of the time",
        title="What saves, failures and restarts leave",
        log_x=True,
        marks={"chosen" if chosen != best else "best": chosen / 60},
    )


def draw_memory(asked: Memory) -> Picture:
    """Return the bytes of all ZeRO stages, side by side."""
    stages = {f"ZeRO stage {stage}": asked.answer(stage)["bytes_per_device"] for stage in STAGES}
    return figures.grouped_bars(
        {name: {k: v / 1e9 for k, v in parts.items()} for name, parts in stages.items()},
        unit="GB",
        title="On each device",
    )


@dataclass(frozen=True)
class Drawing:
    """What a picture shows, in words, and the function that draws it."""

    shows: str
    draw: Callable[..., Picture]


PICTURES = {
    "step": Drawing("compute and buckets over time", draw_step),
    "all-reduce": Drawing("time against bytes", draw_all_reduce),
    "pipeline": Drawing("the timeline", draw_pipeline),
    "parameter-server": Drawing("how many updates were how stale", draw_staleness),
    "failures": Drawing("the time that trains against the interval", draw_failures),
    "memory": Drawing("the bytes of every ZeRO stage", draw_memory),
}
