"""A slider and a choice with real labels, for keyboards, screen readers and both themes.

ipywidgets' own sliders have no accessible name; these are one `<label>` around
one native control, which is all that is needed. The browser's side is in
`controls.js` and `controls.css`, used as they are (anywidget, no build step).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from distlab.errors import CourseError

_HERE = Path(__file__).parent
_STYLE = (_HERE / "controls.css").read_text(encoding="utf-8")
_SCRIPT = (_HERE / "controls.js").read_text(encoding="utf-8")


class Slider(anywidget.AnyWidget):
    """A number from `minimum` to `maximum` in steps of `step`, shown with its `unit`.

    `current` is the number: an int when minimum, maximum and step are whole.
    Raises CourseError for an empty range, a step of 0 or less, or a value
    outside the range.
    """

    _esm = _SCRIPT
    _css = _STYLE
    kind = traitlets.Unicode("slider").tag(sync=True)
    label = traitlets.Unicode().tag(sync=True)
    unit = traitlets.Unicode().tag(sync=True)
    minimum = traitlets.Float().tag(sync=True)
    maximum = traitlets.Float().tag(sync=True)
    step = traitlets.Float().tag(sync=True)
    value = traitlets.Float().tag(sync=True)

    def __init__(
        self,
        label: str,
        minimum: float,
        maximum: float,
        value: float,
        step: float = 1,
        unit: str = "",
    ) -> None:
        if not (minimum < maximum and step > 0 and minimum <= value <= maximum):
            raise CourseError(
                f"slider {label!r}: {value} from {minimum} to {maximum} in steps of {step}: choose "
                "a minimum below the maximum, a step above 0 and a value between them"
            )
        self.whole = all(float(n).is_integer() for n in (minimum, maximum, step))
        super().__init__(
            label=label, minimum=minimum, maximum=maximum, value=value, step=step, unit=unit
        )

    @property
    def current(self) -> float:
        return round(self.value) if self.whole else self.value


class Choice(anywidget.AnyWidget):
    """One of several `options`, shown as a drop-down list; `current` is the chosen one.

    Raises CourseError for no options, or a value that is not one of them.
    """

    _esm = _SCRIPT
    _css = _STYLE
    kind = traitlets.Unicode("choice").tag(sync=True)
    label = traitlets.Unicode().tag(sync=True)
    options = traitlets.List(traitlets.Unicode()).tag(sync=True)
    value = traitlets.Unicode().tag(sync=True)

    def __init__(self, label: str, options: Sequence[str], value: str) -> None:
        if value not in options:
            raise CourseError(
                f"choice {label!r}: {value!r} is not one of {', '.join(options) or 'no options'}"
            )
        super().__init__(label=label, options=list(options), value=value)

    @traitlets.validate("value")
    def _check_value(self, proposal: dict[str, Any]) -> str:
        if proposal["value"] not in self.options:
            raise traitlets.TraitError(f"{proposal['value']!r} is not one of the options")
        return proposal["value"]

    @property
    def current(self) -> str:
        return self.value
