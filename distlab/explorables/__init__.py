"""Interactive pieces: explorables that the browser draws, explorers with sliders, the cockpit.

Each shows a still picture where widgets can't run. README.md says how to write one.
"""

from distlab.explorables.arrow import update_arrow as update_arrow
from distlab.explorables.cockpit_panel import Cockpit as Cockpit
from distlab.explorables.cockpit_panel import cockpit as cockpit
from distlab.explorables.controls import Choice as Choice
from distlab.explorables.controls import Slider as Slider
from distlab.explorables.conveyor import conveyor as conveyor
from distlab.explorables.explorable import Explorable as Explorable
from distlab.explorables.explorer import Explorer as Explorer
from distlab.explorables.explorer import explore as explore
from distlab.explorables.guess import guess_number as guess_number
from distlab.explorables.guess import guess_word as guess_word
from distlab.explorables.memory import memory_machine as memory_machine
from distlab.explorables.ring import all_reduce_race as all_reduce_race
from distlab.explorables.ring import ring_of as ring_of
from distlab.explorables.schedule import schedule_toy as schedule_toy
from distlab.explorables.sharding import sharding_belt as sharding_belt
from distlab.explorables.staleness import staleness_race as staleness_race
from distlab.explorables.step import step_time_line as step_time_line
from distlab.explorables.values import replica_values as replica_values
