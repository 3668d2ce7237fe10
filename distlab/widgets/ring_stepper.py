"""The ring stepper: chunks travel round the ring, step by step, with the reader's own numbers.

The browser's side is in `ring_stepper.js` and `ring_stepper.css`, used as they are
(anywidget, no build step). Arrow keys step, motion can be switched off, and where
the system asks for reduced motion it is off from the start.
"""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anywidget
import numpy as np
import traitlets

from distlab.figures.picture import Picture
from distlab.figures.ring import (
    check_ranks,
    choose_unit,
    describe_moment,
    ring_moment,
    say_parts,
    say_title,
    write_values,
)
from utils.collectives import Message, Moment, list_ring_moments

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

    def __init__(self, moments: Sequence[Moment], place: int = 0) -> None:
        scale, unit = choose_unit(moments[-1])
        self._still: Picture = ring_moment(moments[1])
        frames = [_make_frame(moments, number, scale) for number in range(len(moments))]
        super().__init__(frames=frames, unit=unit, place=place)

    @traitlets.validate("place")
    def _check_place(self, proposal: dict[str, Any]) -> int:
        if not 0 <= proposal["value"] < len(self.frames):
            raise traitlets.TraitError(f"{proposal['value']}: choose 0 to {len(self.frames) - 1}")
        return proposal["value"]

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        """The widget, and beside it a still picture for pages without widgets."""
        bundle = super()._repr_mimebundle_(**options) or {}
        if isinstance(bundle, tuple):
            bundle = bundle[0]
        bundle["text/html"] = self._still.html
        bundle["text/plain"] = f"RingStepper: {self._still.alt}"
        bundle["image/png"] = base64.b64encode(self._still.png()).decode("ascii")
        return bundle


def ring_stepper(vectors: Sequence[np.ndarray]) -> RingStepper:
    """Show a ring all-reduce of one array per rank, step by step, both halves.

    Every number shown is one of `vectors` or a sum that `ring_all_reduce` made of
    them. Of a long chunk the first numbers are shown. Raises CourseError for fewer
    than two or more than six ranks, and for arrays that differ.
    """
    moments = list_ring_moments(vectors)
    check_ranks(moments[0])
    return RingStepper(moments)


def _make_frame(moments: Sequence[Moment], number: int, scale: float) -> dict[str, Any]:
    """Return one moment as plain data: title, words, cells, what leaves, what was done."""
    moment = moments[number]
    return {
        "title": say_title(moment),
        "words": _say_what_happens(moment),
        "alt": describe_moment(moment),
        "cells": [
            [_make_cell(moment, rank, chunk, scale) for chunk in range(moment.ranks)]
            for rank in range(moment.ranks)
        ],
        "leaving": [
            {"from": m.source, "to": m.destination, "chunk": m.chunk,
             "lines": write_values(m.values, scale)}
            for m in moment.leaving
        ],
        "done": [_say_done(moments[number - 1], moment, m, scale) for m in moment.arrived],
    }  # fmt: skip


def _make_cell(moment: Moment, rank: int, chunk: int, scale: float) -> dict[str, Any]:
    return {
        "lines": write_values(moment.values[rank][chunk], scale),
        "parts": say_parts(moment, rank, chunk),
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
        return head + f"{write_values(message.values, scale)[0]} copied"
    own, sent, total = (
        write_values(values, scale)[0]
        for values in (before.values[rank][chunk], message.values, after.values[rank][chunk])
    )
    return head + f"{own} + {sent} = {total}".replace("+ \u2212", "\u2212 ")
