"""One example of each explorable, by name: to look at, test or time."""

from collections.abc import Callable

import numpy as np

from distlab.explorables.arrow import update_arrow
from distlab.explorables.cluster import edit_cluster
from distlab.explorables.conveyor import conveyor
from distlab.explorables.explorable import Explorable
from distlab.explorables.floats import float_line
from distlab.explorables.guess import guess_number
from distlab.explorables.memory import memory_machine
from distlab.explorables.ring import all_reduce_race, ring_of
from distlab.explorables.schedule import schedule_toy
from distlab.explorables.sharding import sharding_belt
from distlab.explorables.staleness import staleness_race
from distlab.explorables.step import step_time_line
from distlab.explorables.values import replica_values
from utils.simulate.collective import Link
from utils.simulate.input import InputCosts
from utils.simulate.step import StepWork


def _show_ring() -> Explorable:
    rng = np.random.default_rng(0)
    return ring_of([rng.normal(size=10) for _ in range(4)])


def _show_guess() -> Explorable:
    guess = guess_number("Idle time of four devices", 0, 100, "%")
    guess.show_answer(75, "simulated")
    return guess


def _show_step() -> Explorable:
    work = StepWork(0.01, 0.02, 100 * 2**20, update_seconds=0.002)
    return step_time_line(work, 8, Link(20e-6, 12.5e9))


def _show_conveyor() -> Explorable:
    return conveyor(InputCosts(2.6e-4, 1.2e-4, 1e-4), step_seconds=0.02)


EXAMPLES: dict[str, Callable[[], Explorable]] = {
    "race": lambda: all_reduce_race(autoplay=False),
    "ring": _show_ring,
    "schedule": schedule_toy,
    "memory": memory_machine,
    "cluster": edit_cluster,
    "floats": lambda: float_line(np.random.default_rng(0).lognormal(-17, 3, 4000)),
    "guess": _show_guess,
    "arrow": update_arrow,
    "conveyor": _show_conveyor,
    "sharding": sharding_belt,
    "step": _show_step,
    "staleness": staleness_race,
    "values": lambda: replica_values(autoplay=False),
}
