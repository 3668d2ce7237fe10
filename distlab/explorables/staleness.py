"""The staleness race: workers of unequal speed, four ways to train, and what late gradients do."""

import numpy as np

from distlab.errors import CourseError
from distlab.explorables.explorable import Explorable
from distlab.figures import timeline
from utils.simulate.parameter_server import MODES, Cluster, simulate_parameter_server

MAX_WORKERS = 8


def staleness_race(
    mode: str = "asynchronous", workers: int = 4, slow: float = 3.0, rate: float = 0.3
) -> Explorable:
    """Show `workers` that train in `mode`, the last of them `slow` times slower, on one clock.

    Times are in steps of a fast worker, `rate` in units of 1/k, the largest curvature of the loss.
    Raises CourseError for an unknown mode, other than 2 to 8 workers, and numbers off the sliders.
    """
    if mode not in MODES:
        raise CourseError(f"mode {mode!r} is unknown: choose {', '.join(MODES)}")
    if not 2 <= workers <= MAX_WORKERS:
        raise CourseError(f"{workers} workers: give 2 to {MAX_WORKERS}")
    if not (1 <= slow <= 6 and 0.02 <= rate <= 2):
        raise CourseError(f"slow {slow:g}, rate {rate:g}: give 1 to 6 and 0.02 to 2")
    varied = Cluster([1.0], jitter=0.3).draw_factors(np.random.default_rng(0), 256)
    data = {"label": "The staleness race", "factors": varied.round(4).tolist()}
    options = {
        "mode": mode,
        "workers": workers,
        "slow": slow,
        "rate": rate,
        "bound": 2,
        "backup": 1,
        "vary": True,
        "time": 1,
    }
    cluster = Cluster([1.0] * (workers - 1) + [slow])
    extra = {"backup": 1} if mode == "backup" else {"bound": 2} if mode == "bounded" else {}
    run = simulate_parameter_server(mode, cluster, 8 * workers, **extra)
    most = max(run.staleness)
    title = f"{mode}: {workers} workers, one {slow:g} times slower; staleness at most {most}"
    still = timeline(sorted(run.spans), title=title, unit="steps of a fast worker")
    return Explorable("staleness", data, options, still)
