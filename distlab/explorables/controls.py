"""A slider and a choice: what an explorer lets the hand change, and where it is frozen."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distlab.errors import CourseError
from utils.checks import check_choice


@dataclass(frozen=True)
class Slider:
    """A number from `minimum` to `maximum` in steps of `step`, shown with its `unit`.

    With a `base` the number is an exponent, and the display shows the power: 1,024 for 10 of 2.
    `grid` are the values that it takes without a kernel. By default they are
    spread over the range. Raises CourseError for an empty range, a step of 0 or less, or a value
    outside the range.
    """

    label: str
    minimum: float
    maximum: float
    value: float
    step: float = 1
    unit: str = ""
    grid: Sequence[float] = ()
    base: int = 0

    def __post_init__(self) -> None:
        low, high, value, step = self.minimum, self.maximum, self.value, self.step
        if not (low < high and step > 0 and all(low <= v <= high for v in (value, *self.grid))):
            raise CourseError(
                f"slider {self.label!r} must have a minimum below its maximum, a step above 0 and "
                f"values between them, got {value} from {low} to {high} in steps of {step}."
            )

    @property
    def whole(self) -> bool:
        return all(float(n).is_integer() for n in (self.minimum, self.maximum, self.step))

    def read(self, value: float) -> float:
        """Return `value` as `render` gets it: an int where the slider has whole numbers."""
        return round(value) if self.whole else float(value)

    def list_grid(self, most: int) -> list[float]:
        """Return about `most` values over the range, all of them where they are no more."""
        if self.grid:
            return sorted({self.read(v) for v in (*self.grid, self.value)})
        count = int((self.maximum - self.minimum) / self.step + 1e-9) + 1
        places = np.arange(count)
        if count > most and self.minimum > 0 and self.maximum >= 50 * self.minimum:
            values = np.geomspace(self.minimum, self.maximum, most)
            places = np.round((values - self.minimum) / self.step)
        elif count > most:
            places = np.round(np.linspace(0, count - 1, most))
        values = {round(self.minimum + k * self.step, 9) for k in places.tolist()}
        return sorted({self.read(v) for v in values | {self.value}})

    def describe(self) -> dict[str, Any]:
        """Return what the browser's control is made of."""
        told = {
            "kind": "slider",
            "label": self.label,
            "min": self.minimum,
            "max": self.maximum,
            "step": self.step,
            "unit": self.unit.strip(),
        }
        return told | ({"base": self.base} if self.base else {})


@dataclass(frozen=True)
class Choice:
    """One of several `options`, shown as a drop-down list; `value` is the first chosen.

    Raises InputError for no options, or a value that isn't one of them.
    """

    label: str
    options: Sequence[str]
    value: str

    def __post_init__(self) -> None:
        check_choice(f"choice {self.label!r}", self.value, self.options)

    def read(self, value: str) -> str:
        """Return `value` as `render` gets it."""
        return value

    def list_grid(self, most: int) -> list[str]:
        """Return every option."""
        return list(self.options)

    def describe(self) -> dict[str, Any]:
        """Return what the browser's control is made of."""
        return {"kind": "choice", "label": self.label, "options": list(self.options)}
