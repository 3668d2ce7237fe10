"""Lesson 17: a warm-up, the noise scale, a layer's own rate."""

import numpy as np

from distlab.turns.turn import Turn

WARM_UP = Turn(
    lesson="17",
    name="warm_up",
    answer="""
def warm_up(step, base, peak, warm, total):
    if step < warm:
        return base + (peak - base) * step / warm
    return peak * (total - step) / (total - warm)
""",
    right="Up from the base rate to the peak, then down to 0 at the end.",
    mistakes={
        """
def warm_up(step, base, peak, warm, total):
    if step < warm:
        return peak * step / warm
    return peak * (total - step) / (total - warm)
""": "It starts at 0, so the first step does nothing. Start at the base rate.",
        """
def warm_up(step, base, peak, warm, total):
    if step < warm:
        return base + (peak - base) * step / warm
    return peak * (total - step) / total
""": "At the end of the warm-up the rate drops: the way down begins at step `warm`, not at 0.",
        """
def warm_up(step, base, peak, warm, total):
    if step < warm:
        return base + (peak - base) * step / warm
    return peak
""": "The way up is right. Then the rate has to fall to 0.",
    },
    otherwise="Two straight lines: base to peak in `warm` steps, peak to 0 in the others.",
    cases=[(s, 0.005, 0.08, 4, 12) for s in (0, 1, 3, 4, 8, 11)],
    tolerance=1e-6,
)
_RNG = np.random.default_rng(0)
_DRAWN = _RNG.normal(0.3, 1.0, size=(2000, 5))  # / 1999 is as good as / 2000
_DRAWN += _RNG.normal(size=(2000, 1))  # the weights' noise is correlated, as in a network
_W, _G = np.random.default_rng(1).normal(size=(2, 4, 3))  # a layer's, so matrices
NOISE = Turn(
    lesson="17",
    name="noise",
    answer="""
def noise_scale(gradients, size):
    mean = gradients.mean(axis=0)
    variance = size * gradients.var(axis=0).sum()
    return variance / (mean @ mean)
""",
    right="A batch's gradient varies `size` times less than one example's, hence the factor.",
    mistakes={
        """
def noise_scale(gradients, size):
    mean = gradients.mean(axis=0)
    return gradients.var(axis=0).sum() / (mean @ mean)
""": (
            "That's the variance of a batch's gradient. One example's is `size` times as large, "
            "since a mean over `size` examples divides it by that."
        ),
        """
def noise_scale(gradients, size):
    mean = gradients.mean(axis=0)
    return size * gradients.var(axis=0).sum() / np.linalg.norm(mean)
""": "Divide by the *squared* norm: a variance has the unit of a gradient squared.",
        """
def noise_scale(gradients, size):
    mean = gradients.mean(axis=0)
    return size * gradients.var() / (mean @ mean)
""": "That's one variance over everything. Take it for each weight (axis 0), and add up.",
        """
def noise_scale(gradients, size):
    mean = gradients.mean(axis=0)
    return size * np.cov(gradients.T).sum() / (mean @ mean)
""": "That adds up the covariances as well. The variances are the diagonal: np.trace(…).",
    },
    otherwise="Three numbers: each weight's variance over the batches, added up; times size; over |mean|².",
    cases=[(_DRAWN, 32), (2 * _DRAWN + 1, 8)],
    tolerance=1e-2,
)
OWN_RATE = Turn(
    lesson="17",
    name="own_rate",
    answer="""
def own_rate(w, g, trust):
    return trust * np.linalg.norm(w) / np.linalg.norm(g)
""",
    right="A step of rate times gradient then has trust times the weights' norm, in every layer.",
    mistakes={
        "def own_rate(w, g, trust):\n    return trust * np.linalg.norm(g) / np.linalg.norm(w)": (
            "Upside down: a layer with a large gradient needs a smaller rate."
        ),
        "def own_rate(w, g, trust):\n    return trust / np.linalg.norm(g)": (
            "Now every layer moves equally far. It should be the same part of its weights."
        ),
        "def own_rate(w, g, trust):\n    return np.linalg.norm(w) / np.linalg.norm(g)": (
            "That moves a layer by as much as its weights. `trust` says how much of that."
        ),
    },
    otherwise="rate · |g| must be trust · |w|. Solve for the rate.",
    cases=[(_W, _G, 0.1), (_G * 9, _W, 0.5)],
    tolerance=1e-6,
)
