"""Interactive pieces: labelled controls, `explore`, and the course's explorers.

Each shows a still picture where widgets cannot run.
"""

from utils.widgets.controls import Choice, Slider
from utils.widgets.explorer import Explorer, explore

__all__ = ["Choice", "Explorer", "Slider", "explore"]
