"""The ring all-reduce with the reader's own numbers: a picture of one moment, and the stepper.

The browser's side is in `ring_stepper.js` and `ring_stepper.css`, used as they are
(anywidget, no build step). Arrow keys step, motion can be switched off, and where
the system asks for reduced motion it is off from the start.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anywidget
import numpy as np
import traitlets

from distlab.errors import CourseError
from distlab.figures import canvas
from distlab.figures.canvas import SMALL_PX, TEXT_PX, WIDTH_PX, Sheet
from distlab.figures.picture import INK, Picture, add_still
from utils.collectives import Message, Moment, list_ring_moments

MAX_RANKS = 6
TOP_PX, HEAD_PX, LEFT_PX, GAP_PX, RIGHT_PX, FOOT_PX = 34.0, 24.0, 62.0, 34.0, 30.0, 34.0
LINE_PX, MAX_VALUES = 17.0, 3
KEY = "of 0+1: sum over ranks 0 and 1 · arrow: what travels next"
_HERE = Path(__file__).parent


class RingStepper(anywidget.AnyWidget):
    """Buttons and keys that lead through the steps; made by `ring_stepper`.

    `place` is the moment shown, 0 before the first step to 2(P-1) after the last;
    `frames[place]` is what is shown there, as plain data. Where widgets cannot run,
    the output shows the still picture of the moment after the first step.
    """

    _esm = (_HERE / "ring_stepper.js").read_text(encoding="utf-8")
    _css = (_HERE / "ring_stepper.css").read_text(encoding="utf-8")
    frames = traitlets.List().tag(sync=True)
    unit = traitlets.Unicode().tag(sync=True)
    place = traitlets.Int(0).tag(sync=True)

    def __init__(self, moments: Sequence[Moment]) -> None:
        scale, unit = _choose_unit(moments[-1])
        self._still = ring_moment(moments[1])
        frames = [_make_frame(moments, number, scale) for number in range(len(moments))]
        super().__init__(frames=frames, unit=unit)

    @traitlets.validate("place")
    def _check_place(self, proposal: dict[str, Any]) -> int:
        if not 0 <= proposal["value"] < len(self.frames):
            raise traitlets.TraitError(f"{proposal['value']}: choose 0 to {len(self.frames) - 1}")
        return proposal["value"]

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        """The widget, and beside it a still picture for pages without widgets."""
        words = f"RingStepper: {self._still.alt}"
        return add_still(super()._repr_mimebundle_(**options), self._still, words)


def ring_stepper(vectors: Sequence[np.ndarray]) -> RingStepper:
    """Show a ring all-reduce of one array per rank, step by step, both halves.

    Every number shown is one of `vectors` or a sum that `ring_all_reduce` made of
    them. Of a long chunk the first numbers are shown. Raises CourseError for fewer
    than two or more than six ranks, and for arrays that differ.
    """
    moments = list_ring_moments(vectors)
    _check_ranks(moments[0])
    return RingStepper(moments)


def ring_moment(moment: Moment) -> Picture:
    """Draw the ranks side by side, a box for each chunk, and an arrow for each message to come.

    A box shows its first numbers and whose they are the sum of; green with a solid
    thick edge is whole, blue with a dashed edge has just arrived. The last rank's arrow
    comes in again at the left. Raises CourseError for more than six ranks.
    """
    _check_ranks(moment)
    scale, unit = _choose_unit(moment)
    box_px = (min(MAX_VALUES, max(len(v) for v in moment.values[0])) + 1) * LINE_PX + 12
    row_px, top_px = box_px + 8, TOP_PX + HEAD_PX
    wide = (WIDTH_PX - LEFT_PX - RIGHT_PX - GAP_PX * (moment.ranks - 1)) / moment.ranks

    def paint(sheet: Sheet) -> None:
        for rank in range(moment.ranks):
            x = LEFT_PX + rank * (wide + GAP_PX)
            sheet.write(x + wide / 2, TOP_PX + HEAD_PX / 2, f"rank {rank}")
            for chunk in range(moment.ranks):
                cell = _make_cell(moment, rank, chunk, scale)
                _draw_cell(sheet, cell, x, top_px + chunk * row_px, wide, box_px)
        for chunk in range(moment.ranks):
            y = top_px + chunk * row_px + box_px / 2
            sheet.write(0, y - 14, f"chunk {chunk}", "left", SMALL_PX)
        for message in moment.leaving:
            _draw_arrow(sheet, message, top_px + message.chunk * row_px + box_px / 2, wide)
        sheet.write(0, height_px - 12, f"{KEY} · {unit}", "left", SMALL_PX)

    height_px = top_px + moment.ranks * row_px + FOOT_PX
    alt = _describe_moment(moment)
    return canvas.draw_sheet(paint, title=_say_title(moment), alt=alt, height_px=height_px)


def _check_ranks(moment: Moment) -> None:
    if moment.ranks > MAX_RANKS:
        raise CourseError(f"{moment.ranks} ranks side by side: give {MAX_RANKS} or fewer")


def _draw_cell(sheet: Sheet, cell: dict[str, Any], x, y, wide: float, tall: float) -> None:
    whole, fresh = cell["whole"], cell["arrived"]
    colour = canvas.GREEN if whole else (canvas.BLUE if fresh else INK)
    strength, line = (0.22, 2.0) if whole or fresh else (0.04, 1.0)
    edge = (0, (4, 2)) if fresh and not whole else "-"
    sheet.rectangle(x, y, wide, tall, colour, strength, linewidth=line, linestyle=edge)
    texts = [(text, TEXT_PX, "bold") for text in cell["lines"]]
    first = y + (tall - len(texts) * LINE_PX) / 2  # so that all lines stand in the middle
    for number, (text, size, weight) in enumerate([*texts, (cell["parts"], SMALL_PX, "normal")]):
        sheet.write(x + wide / 2, first + number * LINE_PX, text, size=size, weight=weight)


def _draw_arrow(sheet: Sheet, message: Message, y: float, wide: float) -> None:
    """Draw the message from its box to the next rank's; the last rank's in two halves."""
    end = LEFT_PX + message.source * (wide + GAP_PX) + wide
    spans = [(end + 2, end + GAP_PX - 2)]
    if message.destination == 0:
        spans = [(end + 2, end + RIGHT_PX - 2), (LEFT_PX - 28, LEFT_PX - 2)]
    for start, stop in spans:
        sheet.axes.annotate(
            "", (stop, y), (start, y),
            arrowprops={"arrowstyle": "-|>", "color": canvas.VERMILLION, "linewidth": 2.4,
                        "shrinkA": 0, "shrinkB": 0, "mutation_scale": 15},
        )  # fmt: skip


# ---- one moment in words and plain data, for the picture and the stepper


def _make_frame(moments: Sequence[Moment], number: int, scale: float) -> dict[str, Any]:
    """Return one moment as plain data: title, words, cells, what leaves, what was done."""
    moment = moments[number]
    return {
        "title": _say_title(moment),
        "words": _say_what_happens(moment),
        "alt": _describe_moment(moment),
        "cells": [
            [_make_cell(moment, rank, chunk, scale) for chunk in range(moment.ranks)]
            for rank in range(moment.ranks)
        ],
        "leaving": [
            {"from": m.source, "to": m.destination, "chunk": m.chunk,
             "lines": _write_values(m.values, scale)}
            for m in moment.leaving
        ],
        "done": [_say_done(moments[number - 1], moment, m, scale) for m in moment.arrived],
    }  # fmt: skip


def _make_cell(moment: Moment, rank: int, chunk: int, scale: float) -> dict[str, Any]:
    return {
        "lines": _write_values(moment.values[rank][chunk], scale),
        "parts": _say_parts(moment, rank, chunk),
        "whole": moment.is_whole(rank, chunk),
        "arrived": any(m.destination == rank and m.chunk == chunk for m in moment.arrived),
        "enters": rank == 0
        and any(m.destination == 0 and m.chunk == chunk for m in moment.leaving),
        "leaves": any(m.source == rank and m.chunk == chunk for m in moment.leaving),
    }


def _say_what_happens(moment: Moment) -> str:
    """Return what the step just done did, for all ranks alike."""
    if moment.phase == "":
        return "Each chunk with an arrow goes to the next rank in the first step."
    if moment.phase == "reduce-scatter":
        said = "Each rank has sent one chunk to the next, which added it to its own."
        if moment.leaving and moment.leaving[0].phase == "all-gather":
            said += " Every rank now has one whole sum: the first half is over."
        return said
    if not moment.leaving:
        return "The last chunks are copied: every rank has every sum."
    return "Each rank has sent a whole sum to the next, which put it in place of its own."


def _say_done(before: Moment, after: Moment, message: Message, scale: float) -> str:
    """Return what one message did, with the first number of its chunk."""
    rank, chunk = message.destination, message.chunk
    head = f"rank {message.source} \u2192 rank {rank}, chunk {chunk}: "
    if not len(message.values):
        return head + "empty"
    if message.phase != "reduce-scatter":
        return head + f"{_write_values(message.values, scale)[0]} copied"
    own, sent, total = (
        _write_values(values, scale)[0]
        for values in (before.values[rank][chunk], message.values, after.values[rank][chunk])
    )
    return head + f"{own} + {sent} = {total}".replace("+ \u2212", "\u2212 ")


def _choose_unit(moment: Moment) -> tuple[float, str]:
    """Return what to multiply the numbers with so that they are short, and how to say that."""
    finite = [np.abs(v[np.isfinite(v)]) for row in moment.values for v in row]
    largest = max((float(v.max()) for v in finite if v.size), default=0.0)
    if largest == 0 or 1 <= largest < 1000:
        return 1.0, "numbers are rounded"
    power = 3 * math.floor(math.log10(largest) / 3)
    return 10.0**-power, f"numbers in units of 1e{power:+03d}, rounded"


def _write_values(values: np.ndarray, scale: float) -> list[str]:
    """Return the first numbers of a chunk, at most three lines."""
    if not len(values):
        return ["(empty)"]
    shown = [f"{float(v) * scale:.2f}".replace("-", "\u2212") for v in values[:MAX_VALUES]]
    if len(values) > MAX_VALUES:
        shown[-1] = f"\u2026 {len(values) - MAX_VALUES + 1} more"
    return shown


def _say_parts(moment: Moment, rank: int, chunk: int) -> str:
    """Return whose numbers a chunk is: "of 2", "of 1+2", "whole sum"."""
    if moment.is_whole(rank, chunk):
        return "whole sum"
    return "of " + "+".join(str(one) for one in sorted(moment.parts[rank][chunk]))


def _say_title(moment: Moment) -> str:
    """Return "After step 2 of 6, reduce-scatter"."""
    if moment.step == 0:
        return f"Before step 1 of {moment.steps}: every rank has its own numbers"
    return f"After step {moment.step} of {moment.steps}, {moment.phase}"


def _describe_moment(moment: Moment) -> str:
    """Return in words who holds whole sums and what travels next."""
    whole = [
        f"rank {rank} chunk {chunk}"
        for rank in range(moment.ranks)
        for chunk in range(moment.ranks)
        if moment.is_whole(rank, chunk)
    ]
    says = (
        f"{_say_title(moment)}. {moment.ranks} ranks on a ring, each with {moment.ranks} chunks. "
    )
    everything = moment.ranks**2
    if len(whole) == everything:
        return says + "Every rank has the whole sum of every chunk."
    says += f"Whole sums: {', '.join(whole) or 'none'}. "
    next_ones = [f"chunk {m.chunk} from rank {m.source} to {m.destination}" for m in moment.leaving]
    return f"{says}Next travel: {', '.join(next_ones)}."
