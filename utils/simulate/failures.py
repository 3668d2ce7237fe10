"""Choose how often to save, from the cost of checkpoints and of failures. NumPy at most.

A run saves after every `interval_seconds` of work, which takes `save_seconds`; failures
come at random, one in `mtbf_seconds` on average (mean time between failures), and each
throws the run back to its last checkpoint and costs `restart_seconds` besides. Short
intervals cost saving, long ones work done twice; between them lies the best.

Young, "A first order approximation to the optimum checkpoint interval",
Communications of the ACM 17(9), 1974, doi:10.1145/361147.361115; Daly, "A higher order
estimate of the optimum checkpoint interval for restart dumps", Future Generation Computer
Systems 22(3), 2006, doi:10.1016/j.future.2004.11.016, whose M, delta, tau and R are
`mtbf_seconds`, `save_seconds`, `interval_seconds` and `restart_seconds` here.
"""

import math

import numpy as np

from ..checks import check_number


def group_mtbf_seconds(task_mtbf_seconds: float, tasks: int) -> float:
    """Return the mean time between failures of `tasks` tasks that stop together.

    A synchronous group of n fails when any of its tasks does, n times as often.
    """
    _check_positive(task_mtbf_seconds=task_mtbf_seconds, tasks=tasks)
    return task_mtbf_seconds / tasks


def young_interval_seconds(save_seconds: float, mtbf_seconds: float) -> float:
    """Return Young's interval of work between two checkpoints, sqrt(2 * save * MTBF), in seconds.

    `save_seconds` is the time of one save, `mtbf_seconds` the mean time between failures. Raises
    InputError for numbers that aren't positive. Follows Young 1974, doi:10.1145/361147.361115.

        >>> round(young_interval_seconds(save_seconds=60, mtbf_seconds=24 * 3600))
        3220
    """
    _check_positive(save_seconds=save_seconds, mtbf_seconds=mtbf_seconds)
    return math.sqrt(2 * save_seconds * mtbf_seconds)


def daly_interval_seconds(save_seconds: float, mtbf_seconds: float) -> float:
    """Return Daly's interval of work between two checkpoints, his equation 37.

    It stays near the optimum where Young's doesn't, when saving takes a good part of
    the time between failures; from `save_seconds` of twice the MTBF on it is the MTBF.
    """
    young = young_interval_seconds(save_seconds, mtbf_seconds)
    if save_seconds >= 2 * mtbf_seconds:
        return mtbf_seconds
    ratio = math.sqrt(save_seconds / (2 * mtbf_seconds))
    return young * (1 + ratio / 3 + ratio**2 / 9) - save_seconds


def expected_run_seconds(
    work_seconds: float,
    interval_seconds: float,
    save_seconds: float,
    mtbf_seconds: float,
    restart_seconds: float = 0.0,
) -> float:
    """Return the expected time of a run that has `work_seconds` of training to do.

    Exact for failures that come as a Poisson process (Daly's equation 13), also while
    saving and restarting. Each whole interval ends with a save, the last one too.
    """
    _check_positive(
        work_seconds=work_seconds, interval_seconds=interval_seconds, mtbf_seconds=mtbf_seconds
    )
    _check_not_negative(save_seconds=save_seconds, restart_seconds=restart_seconds)
    segment = (interval_seconds + save_seconds) / mtbf_seconds
    if segment + restart_seconds / mtbf_seconds > 700:
        return math.inf  # e^700 times the MTBF: such a run doesn't end
    tries = mtbf_seconds * math.exp(restart_seconds / mtbf_seconds) * math.expm1(segment)
    return tries * work_seconds / interval_seconds


def overhead_fraction(
    interval_seconds: float,
    save_seconds: float,
    mtbf_seconds: float,
    restart_seconds: float = 0.0,
) -> float:
    """Return expected time over working time, less 1: 0.05 is a run 5 % longer than its work."""
    expected = expected_run_seconds(
        1.0, interval_seconds, save_seconds, mtbf_seconds, restart_seconds
    )
    return expected - 1.0


def best_interval_seconds(save_seconds: float, mtbf_seconds: float) -> float:
    """Return the interval of least `overhead_fraction`, whatever a restart takes.

    Where the derivative of Daly's exact cost is 0: x + exp(-x - save/MTBF) = 1 for
    x = interval / MTBF, solved by Newton's method from above.
    """
    _check_positive(save_seconds=save_seconds, mtbf_seconds=mtbf_seconds)
    save = save_seconds / mtbf_seconds
    x = min(math.sqrt(2 * save), 1.0)
    for _ in range(60):  # g is convex and g(x) >= 0 at the start: every step comes nearer
        last, x = x, x - (x + math.expm1(-x - save)) / -math.expm1(-x - save)
        if abs(x - last) <= 1e-15 * x:
            break
    return x * mtbf_seconds


def effective_time_fraction(
    interval_seconds: float,
    save_seconds: float,
    mtbf_seconds: float,
    restart_seconds: float = 0.0,
) -> float:
    """Return work over expected time, 0 to 1: what is left after saves, failures and restarts."""
    return 1 / (
        1 + overhead_fraction(interval_seconds, save_seconds, mtbf_seconds, restart_seconds)
    )


def best_effective_time(
    save_seconds: float, mtbf_seconds: float, restart_seconds: float = 0.0
) -> float:
    """Return the share of time that trains with the best interval between checkpoints."""
    best = best_interval_seconds(save_seconds, mtbf_seconds)
    return effective_time_fraction(best, save_seconds, mtbf_seconds, restart_seconds)


def simulate_run_seconds(
    work_seconds: float,
    interval_seconds: float,
    save_seconds: float,
    mtbf_seconds: float,
    restart_seconds: float = 0.0,
    *,
    runs: int = 1000,
    seed: int = 0,
) -> np.ndarray:
    """Return the times of `runs` simulated runs, float64 [runs]: failures drawn one by one.

    No formula is used: each try of an interval draws the time to the next failure from
    an exponential distribution, and is repeated, after a restart that may fail as
    well, until it outlasts interval and save. `work_seconds` is rounded up to whole
    intervals.
    """
    _check_positive(
        work_seconds=work_seconds,
        interval_seconds=interval_seconds,
        mtbf_seconds=mtbf_seconds,
        runs=runs,
    )
    _check_not_negative(save_seconds=save_seconds, restart_seconds=restart_seconds)
    rng = np.random.default_rng(seed)
    seconds = np.zeros(runs)
    for _ in range(math.ceil(work_seconds / interval_seconds - 1e-9)):
        waiting = np.ones(runs, dtype=bool)  # [runs]: this interval isn't done yet
        needed = np.full(runs, interval_seconds + save_seconds)
        while waiting.any():
            failure = rng.exponential(mtbf_seconds, runs)
            seconds += np.where(waiting, np.minimum(failure, needed), 0.0)
            waiting &= failure < needed
            needed = np.where(waiting, restart_seconds + interval_seconds + save_seconds, needed)
    return seconds


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        check_number(name.replace("_", " "), value, above=0)


def _check_not_negative(**values: float) -> None:
    for name, value in values.items():
        check_number(name.replace("_", " "), value, least=0)
