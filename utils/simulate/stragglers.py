"""How much longer a synchronous step is because it waits for its slowest worker. NumPy at most.

A worker's step takes its usual time times a lognormal factor of mean 1: the exponential of
a normal number of standard deviation sigma and mean -sigma^2/2. P workers wait for the
largest of P factors, whose expectation is the integral of 1 - F(x)^P.
"""

import math

import numpy as np

from ..checks import check_count, check_number
from ..errors import InputError

POINTS = 4001  # of the integral; its error is below 1e-6 for sigma up to MAX_SIGMA
MAX_SIGMA = 3.0
_erf = np.vectorize(math.erf, otypes=[float])


def expect_slowest(workers: int | np.ndarray, sigma: float) -> float | np.ndarray:
    """Return the expected largest of `workers` lognormal factors of mean 1.

    1.0 for one worker or a `sigma` of 0. Takes an array of workers as well. Raises
    InputError for fewer than one worker and a `sigma` below 0 or above 3.
    """
    if check_number("straggler sigma", sigma, least=0) > MAX_SIGMA:
        raise InputError(f"straggler sigma {sigma:g}: must be {MAX_SIGMA:g} or less")
    counts = np.asarray(workers)
    for count in np.unique(counts):
        check_count("workers", count.item())
    if sigma == 0:
        return np.ones(counts.shape) if counts.shape else 1.0
    found = _integrate(counts.reshape(-1, 1), sigma)
    return found.reshape(counts.shape) if counts.shape else float(found[0])


def _integrate(counts: np.ndarray, sigma: float) -> np.ndarray:
    """Return E[max] = sum over z of x(z) d(Phi(z)^P): [counts]."""
    z = np.linspace(-10.0, 10.0 + 2 * sigma, POINTS)  # of the normal number behind a factor
    with np.errstate(divide="ignore"):
        below = np.log((1 + _erf(z / math.sqrt(2))) / 2)  # log Phi(z)
    reached = np.exp(counts * below)  # [count, z]: all factors are below x(z)
    middle = np.exp(sigma * (z[1:] + z[:-1]) / 2 - sigma**2 / 2)
    return np.diff(reached, axis=1) @ middle


def draw_slowest(workers: int, sigma: float, steps: int, seed: int = 0) -> np.ndarray:
    """Return the largest factor in each of `steps` steps, drawn one by one: float64 [steps]."""
    check_count("workers", workers)
    random = np.random.default_rng(seed)
    factors = random.lognormal(-(sigma**2) / 2, sigma, (steps, workers))
    return factors.max(axis=1)
