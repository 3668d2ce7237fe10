"""Interactive pieces: labeled controls, `explore`, the course's explorers, and the cockpit.

Each shows a still picture where widgets cannot run.
"""

from distlab.widgets.cockpit_panel import Cockpit as Cockpit
from distlab.widgets.cockpit_panel import cockpit as cockpit
from distlab.widgets.controls import Choice as Choice
from distlab.widgets.controls import Slider as Slider
from distlab.widgets.explorer import Explorer as Explorer
from distlab.widgets.explorer import explore as explore
