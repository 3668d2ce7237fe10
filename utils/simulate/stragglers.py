"""Predict how long synchronous steps wait for their slowest worker. NumPy at most.

A worker's step takes its usual time times a lognormal factor of mean 1: the exponential of
a normal number of standard deviation sigma and mean -sigma^2/2. P workers wait for the
largest of P factors, whose expectation is the integral of 1 - F(x)^P.
"""

import functools
import math

import numpy as np

from ..checks import check_count, check_number
from ..errors import InputError

POINTS = 2001  # of the integral; its error is below 1e-5 up to sigma 1, 1e-3 up to MAX_SIGMA
MAX_SIGMA = 3.0


def expect_slowest(workers: int, sigma: float) -> float:
    """Return the expected largest of `workers` lognormal factors of mean 1.

    1.0 for one worker or a `sigma` of 0. Raises InputError for fewer than one worker and
    a `sigma` below 0 or above 3.
    """
    if check_number("straggler sigma", sigma, least=0) > MAX_SIGMA:
        raise InputError(f"straggler_sigma must be at most {MAX_SIGMA:g}, got {sigma:g}.")
    check_count("workers", workers)
    return 1.0 if sigma == 0 else _integrate(workers, sigma)


@functools.lru_cache(maxsize=65536)
def _integrate(workers: int, sigma: float) -> float:
    """Return E[max] = sum over z of x(z) d(Phi(z)^P)."""
    z, below = _tabulate_normal()
    reached = np.exp(workers * below)  # [z]: all factors are below x(z)
    middle = np.exp(sigma * (z[1:] + z[:-1]) / 2 - sigma**2 / 2)
    return float(np.diff(reached) @ middle)


@functools.lru_cache(maxsize=1)
def _tabulate_normal() -> tuple[np.ndarray, np.ndarray]:
    """Return z, the normal number behind a factor, and log Phi(z): [POINTS] each."""
    z = np.linspace(-10.0, 10.0 + 2 * MAX_SIGMA, POINTS)
    with np.errstate(divide="ignore"):
        return z, np.log((1 + np.vectorize(math.erf)(z / math.sqrt(2))) / 2)
