"""`explore`: a function's picture, which the browser draws again whenever a control moves.

The browser draws from frames, plain data: what `render` returned for the controls' values. Over
a grid of values they are made beforehand (`freeze`), so that a move is answered at once and a
page without a kernel is alive. With a kernel, it adds the exact frame between them.
"""

import html
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from distlab.explorables.controls import Choice, Slider
from distlab.explorables.explorable import Explorable
from distlab.explorables.frames import Frame, freeze, round_numbers
from distlab.figures.canvas import charts_alone
from distlab.figures.picture import Picture, stack

Control = Slider | Choice
Shown = Picture | str | Sequence[Picture | str]
Render = Callable[..., Shown]

MAX_FRAMES, MAX_PAINTED = 240, 12  # in the grid; with pictures that have no chart
_ERROR = (
    '<p role="alert" style="margin:0.5em 0;padding:0.4em 0.8em;border-left:4px solid #D55E00">'
    "<strong>{}</strong>: {}</p>"
)


@dataclass(frozen=True)
class Try:
    """A question on a chip: it sets the controls to `set`; at `act`, or beyond, `answer` shows.

    Both hold values of controls by name, for a slider values of its grid. In `act`, a control may
    have a list: each of its values answers, and nothing beyond them.
    """

    ask: str
    set: Mapping[str, Any]
    act: Mapping[str, Any]
    answer: str


class Explorer(Explorable):
    """Controls above the result of `render(**values)`; made by `explore`.

    `values` holds the controls' present values by name, and `move` chooses others; `result`
    is what is shown, in words. Where scripts don't run, the output shows the result for the
    values that the explorer was made with.
    """

    def __init__(
        self, render: Render, controls: Mapping[str, Control], tries: Sequence[Try] = ()
    ) -> None:
        self._render, self._controls = render, dict(controls)
        self._frozen: dict[str, Any] | None = None
        start = {name: control.read(control.value) for name, control in controls.items()}
        still = self._call(start)
        described = [{"name": name, **control.describe()} for name, control in controls.items()]
        frame = _to_frame(still)
        title = frame["parts"][0].get("title") or ", ".join(c.label for c in controls.values())
        data = {
            "label": f"Explorer: {title}",
            "controls": described,
            "live": True,
            "frame": frame,
            "at": start,
            "frozen": None,
        } | ({"tries": [asdict(each) for each in tries]} if tries else {})
        super().__init__("explorer", data, start, _to_still(still))
        self.observe(self._answer, "options")

    @property
    def values(self) -> dict[str, Any]:
        chosen = {name: self.options[name] for name in self._controls}
        return {name: self._controls[name].read(value) for name, value in chosen.items()}

    @property
    def result(self) -> str:
        return json.dumps(self.data["frame"], ensure_ascii=False)

    def move(self, **values: Any) -> None:
        """Choose other values for some controls, as the hand would."""
        self.options = {**self.options, **values}

    def _call(self, values: Mapping[str, Any]) -> Shown:
        try:
            return self._render(**values)
        except Exception as error:
            says = str(error).splitlines() or ["no message"]
            return _ERROR.format(type(error).__name__, html.escape(says[0]))

    def _answer(self, change: object) -> None:
        values = self.values
        with charts_alone():
            frame = _to_frame(self._call(values))
        self.data = {**self.data, "frame": frame, "at": values, "frozen": None}  # sent once

    def _freeze(self) -> dict[str, Any]:
        """Return the grid of each control's values, and the frames of all their combinations."""
        first = self.data["frame"]["parts"]
        most = MAX_PAINTED if any(part["kind"] == "html" for part in first) else MAX_FRAMES
        grids = _list_grids(self._controls, most)
        frames = []
        with charts_alone():
            for values in itertools.product(*grids.values()):
                frames.append(_to_frame(self._call(dict(zip(grids, values, strict=True)))))
        return {"grids": grids, **freeze(frames)}

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        """Freeze the grid on the first showing; then as every explorable."""
        self._frozen = self._frozen or self._freeze()
        self.data = {**self.data, "frozen": self._frozen}
        words = getattr(self.still, "alt", "") or self.data["label"].partition(": ")[2]
        return super()._repr_mimebundle_(**options) | {"text/plain": f"Explorer: {words}"}

    def _page_data(self) -> dict[str, Any]:
        return {**self.data, "frozen": self._frozen, "live": False}


def explore(render: Render, *, tries: Sequence[Try] = (), **controls: Control) -> Explorer:
    """Show `tries` (questions), `controls` and, below them, what `render` returns for their values.

    `render` is called with one argument for each control, by name, once now, after each change,
    and when the explorer is shown for a grid of all values. It returns a Picture, a string of
    HTML, or several of them. An error that it raises is shown in its place in one line, and the
    controls stay alive.
    """
    return Explorer(render, controls, tries)


def _list_grids(controls: Mapping[str, Control], most: int) -> dict[str, list[Any]]:
    """Return values of each control, at most `most` combinations unless choices alone exceed it."""
    free = [c for c in controls.values() if isinstance(c, Slider) and not c.grid]
    fixed = [c for c in controls.values() if c not in free]
    room = most
    for control in fixed:
        room //= len(control.list_grid(most))
    each = max(3, int(max(room, 1) ** (1 / len(free)) + 1e-9)) if free else 0
    return {name: control.list_grid(each) for name, control in controls.items()}


def _to_frame(shown: Shown) -> Frame:
    """Return what the browser draws: charts where there are any, else finished HTML."""
    several = [shown] if isinstance(shown, Picture | str) else list(shown)
    parts = []
    for each in several:
        if isinstance(each, str):
            parts.append({"kind": "html", "html": each})
        elif each.chart is None:
            parts.append({"kind": "html", "html": each.html})
        else:
            words = "" if each.caption else each.alt
            parts.append({**each.chart, "alt": words, "caption": each.caption})
    return round_numbers({"parts": parts})


def _to_still(shown: Shown) -> Picture | str:
    """Return the pictures as one, if there are any: a code host drops a drawing inside HTML."""
    if isinstance(shown, Picture | str):
        return shown
    pictures = [each for each in shown if isinstance(each, Picture)]
    return stack(pictures) if pictures else "".join(shown)
