"""The staleness race: workers of unequal speed, four ways to train, and what late gradients do."""

import numpy as np

from distlab.explorables.explorable import Explorable
from distlab.figures import timeline
from utils.simulate.parameter_server import Cluster, simulate_parameter_server

MODE, WORKERS, SLOW = "asynchronous", 4, 3.0  # at first


def staleness_race() -> Explorable:
    """Show workers that train in one mode of several, the last of them slower, on one clock.

    Times are in steps of a fast worker, `rate` in units of 1/k, the largest curvature of the loss.
    """
    varied = Cluster([1.0], jitter=0.3).draw_factors(np.random.default_rng(0), 256)
    data = {"label": "The staleness race", "factors": varied.round(4).tolist()}
    options = {
        "mode": MODE,
        "workers": WORKERS,
        "slow": SLOW,
        "rate": 0.3,
        "bound": 2,
        "backup": 1,
        "vary": True,
        "time": 1,
    }
    cluster = Cluster([1.0] * (WORKERS - 1) + [SLOW])
    run = simulate_parameter_server(MODE, cluster, 8 * WORKERS)
    most = max(run.staleness)
    title = f"{MODE}: {WORKERS} workers, one {SLOW:g} times slower; staleness at most {most}"
    still = timeline(sorted(run.spans), title=title, unit="steps of a fast worker")
    return Explorable("staleness", data, options, still)
