"""`explore`: a function's picture, drawn again whenever a control moves."""

import html
from collections.abc import Callable
from typing import Any

import ipywidgets

from distlab.figures.picture import Picture, add_still
from distlab.widgets.controls import Choice, Slider

Control = Slider | Choice
Render = Callable[..., Picture | str]

_FRAME = (
    '<div style="line-height:1.5;color:var(--jp-content-font-color1, #222);'
    'font-size:var(--jp-content-font-size1, 14px)">{}</div>'
)
_ERROR = (
    '<p role="alert" style="margin:0.5em 0;padding:0.4em 0.8em;border-left:4px solid #D55E00">'
    "<strong>{}</strong>: {}</p>"
)


class Explorer(ipywidgets.VBox):
    """Controls above the result of `render(**values)`; made by `explore`.

    `values` holds the controls' present values by name, `result` the HTML
    shown. Where widgets cannot run, the output shows the result for the values
    that the explorer was made with.
    """

    def __init__(self, render: Render, controls: dict[str, Control]) -> None:
        self._render = render
        self._controls = controls
        self._start = self._call()
        self._view = ipywidgets.HTML(_as_html(self._start))
        self._view.layout = ipywidgets.Layout(margin="4px 0", width="auto", overflow="hidden")
        super().__init__([*controls.values(), self._view])
        for control in controls.values():
            control.observe(self._update, names="value")

    @property
    def values(self) -> dict[str, Any]:
        return {name: control.current for name, control in self._controls.items()}

    @property
    def result(self) -> str:
        return self._view.value

    def _call(self) -> Picture | str:
        try:
            return self._render(**self.values)
        except Exception as error:
            says = str(error).splitlines() or ["no message"]
            return _ERROR.format(type(error).__name__, html.escape(says[0]))

    def _update(self, change: object) -> None:
        self._view.value = _as_html(self._call())

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        """The widget, and beside it the still result of the start for pages without widgets."""
        words = f"Explorer: {getattr(self._start, 'alt', ', '.join(self._controls))}"
        bundle = add_still(super()._repr_mimebundle_(**options), self._start, words)
        return bundle | {"text/html": _as_html(self._start)}


def explore(render: Render, **controls: Control) -> Explorer:
    """Show `controls` and, below them, what `render` returns for their values.

    `render` is called with one argument for each control, by name, once now and
    after each change; it returns a Picture or a string of HTML. An error that
    it raises is shown in its place in one line, and the controls stay alive.
    """
    return Explorer(render, controls)


def _as_html(result: Picture | str) -> str:
    return _FRAME.format(result.html if isinstance(result, Picture) else result)
