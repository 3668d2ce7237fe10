"""The staleness race: workers of unequal speed, four ways to train, and what late gradients do."""

import numpy as np

from distlab.errors import CourseError
from distlab.explorables.explorable import Explorable
from distlab.figures import timeline
from utils.checks import check_choice, check_count
from utils.simulate.parameter_server import MODES, Cluster, simulate_parameter_server

MAX_WORKERS = 8


def staleness_race(
    mode: str = "asynchronous", workers: int = 4, slow: float = 3.0, rate: float = 0.3
) -> Explorable:
    """Show `workers` that train in `mode`, the last of them `slow` times slower, on one clock.

    Times are in steps of a fast worker, `rate` in units of 1/k, the largest curvature of the loss.
    Raises DistributedError for an unknown mode, and for numbers off the sliders.
    """
    check_choice("mode", mode, MODES)
    check_count("workers", workers, 2, MAX_WORKERS)
    if not (1 <= slow <= 6 and 0.02 <= rate <= 2):
        raise CourseError(
            f"slow must be from 1 to 6 and rate from 0.02 to 2, got {slow:g} and {rate:g}."
        )
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
