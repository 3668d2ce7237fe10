"""Interactive pieces: labelled controls, `explore`, the course's explorers, and the cockpit.

Each shows a still picture where widgets cannot run.
"""

from distlab.widgets.cockpit_panel import Cockpit, cockpit
from distlab.widgets.controls import Choice, Slider
from distlab.widgets.explorer import Explorer, explore

__all__ = ["Choice", "Cockpit", "Explorer", "Slider", "cockpit", "explore"]
