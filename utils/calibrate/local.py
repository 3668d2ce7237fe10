"""Several workers on the cores of one machine: calibrate with two processes, predict any number.

W workers on C cores share them. While there are cores enough, a step takes what two
processes measured: compute, then what training together adds to it. With too few,
processors are the limit: W times one worker's processor seconds, over C. Both parts take
the longer of the two:

    compute(W)  = max(step, crowded * W * step_processor / C)
    together(W) = max(path(W), crowded * W * path_processor(W) / C)
    path(W)     = (pair - step - reduce) + launch + (W - 1) * message + 2 (W - 1)/W * carried

Processes that wait for one another on shared cores spend processor time on waiting and
on switching: crowded is 1.25 where there are more workers than cores, else 1.
`pair - step` is what a step of two workers takes more than both computing for themselves;
what the all-reduce doesn't explain of it is the strategy's own work, the same for any W.
Of the all-reduce, a ring over two takes `launch` for one number, `message` more for a
vector that is cut into pieces (the rest of 16 KiB), and `carried` more for the bytes of
the gradients. A ring over W passes 2 (W - 1) messages instead of 2, which carry
2 (W - 1)/W of the bytes.
"""

from __future__ import annotations

import datetime
import platform
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..checks import check_count
from ..environment import count_cores
from .profile import MAX_SPREAD, LocalCosts, Profile

if TYPE_CHECKING:
    from ..cluster.launcher import Launcher

MIN_SPREAD = 0.2
CROWDED = 1.25
SHORT_BYTES = 4 * 4096
Builder = Callable[[], Any]


@dataclass(frozen=True)
class LocalCheck:
    """A step of several local workers: predicted seconds with their range, and measured seconds."""

    workers: int
    predicted: float
    low: float
    high: float
    measured: float

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1


def predict_local(local: LocalCosts, workers: int) -> float:
    """Return the seconds of a step of `workers` workers on this machine, weak scaling."""
    check_count("workers", workers)
    share = workers / local.cores * (CROWDED if workers > local.cores else 1.0)
    compute = max(local.step_seconds, share * local.step_processor_seconds)
    if workers == 1:
        return compute
    path = _find_path(
        local.pair_seconds - local.step_seconds,
        local.launch_seconds,
        local.short_seconds,
        local.reduce_seconds,
        workers,
    )
    worked = _find_path(
        local.pair_processor_seconds - local.step_processor_seconds,
        local.launch_processor_seconds,
        local.short_processor_seconds,
        local.reduce_processor_seconds,
        workers,
    )
    return compute + max(path, share * worked)


def _find_path(added: float, launch: float, short: float, whole: float, workers: int) -> float:
    """Return the seconds that `workers` add by training together, from the seconds of two."""
    added = max(0.0, added)
    launch, short = min(launch, short, whole), min(short, whole)
    message, carried = short - launch, whole - short
    ring = launch + (workers - 1) * message + 2 * (workers - 1) / workers * carried
    if whole > added:  # the all-reduce measured alone was disturbed: only its shape is used
        return added * ring / whole if whole else 0.0
    return added - whole + ring


def calibrate(
    model: str | Builder, batch: int, *, name: str = "", launcher: Launcher | None = None
) -> Profile:
    """Measure a model with two processes of this machine and return its profile.

    They compute on its cores, also on a machine with GPUs: the result is how processes share cores.

    `model` is a name of `utils.models` or a function that returns a built `keras.Model`; it
    must be importable in another process. Raises InputError for what can't be built.
    """
    check_count("batch", batch)
    from ..cluster import LocalCluster

    with LocalCluster(2, devices="cpu", launcher=launcher) as cluster:
        first, second = cluster.run(_measure, "measure_costs", model, batch, echo=False)
    return make_profile(name or str(model), batch, first, second)


def make_profile(name: str, batch: int, first: dict[str, Any], second: dict[str, Any]) -> Profile:
    """Return the profile of what two workers measured (`measuring.measure_costs`)."""
    costs = {
        key: [max(pair) for pair in zip(first[key], second[key], strict=True)]
        for key in ("both", "pair", "launch", "short", "reduce")
    }
    step = first["alone"][0]
    forward = step * first["forward_share"]
    backward = step - forward
    gradient_bytes = 4 * first["parameters"]
    latency, bandwidth = _find_link(costs, gradient_bytes)
    local = LocalCosts(
        count_cores(),
        *costs["both"],
        *costs["pair"],
        *costs["launch"],
        *costs["short"],
        *costs["reduce"],
    )
    spread = max(MIN_SPREAD, min(MAX_SPREAD, max(first["spread"], second["spread"])))
    return Profile(
        forward,
        backward,
        gradient_bytes,
        name,
        batch,
        first["parameters"],
        min(step * first["fixed_share"], forward + backward),
        first["input_seconds"],
        first["checkpoint_seconds"],
        0.0,
        first["flops"],
        first["activation_bytes"],
        first["operations"],
        first["compiled_operations"],
        first["call_seconds"],
        spread=spread,
        latency_seconds=latency,
        bandwidth_bytes_per_second=bandwidth,
        local=local,
        measured=f"{datetime.date.today()}, {platform.machine()}, {count_cores()} cores",
    )


def _find_link(costs: dict[str, list[float]], gradient_bytes: float) -> tuple[float, float]:
    """Return seconds per message and bytes/s of a ring over two ranks, from its three sizes."""
    launch, short, whole = (costs[key][0] for key in ("launch", "short", "reduce"))
    more = max(whole - short, 0.02 * whole)
    return min(launch, short) / 2, max(1.0, gradient_bytes - SHORT_BYTES) / more


def check_locally(
    model: str | Builder,
    profile: Profile,
    workers: Iterable[int] = (2, 4),
    *,
    launcher: Launcher | None = None,
) -> Iterator[LocalCheck]:
    """Run `workers` workers of this machine for each number; yield predictions next to them."""
    from ..cluster import LocalCluster

    for number in workers:
        predicted = predict_local(profile.local, number)
        with LocalCluster(number, devices="cpu", launcher=launcher) as cluster:
            times = cluster.run(_measure, "measure_training", model, profile.batch, echo=False)
        measured = max(seconds for seconds, _ in times)
        low, high = predicted * (1 - MAX_SPREAD), predicted * (1 + MAX_SPREAD)
        yield LocalCheck(number, predicted, low, high, measured)


def _measure(work: str, model: str | Builder, batch: int) -> Any:
    """Run in a worker: a function of `measuring` on the model. TensorFlow is imported here."""
    import functools

    from ..models import build_model
    from . import measuring

    build = functools.partial(build_model, model) if isinstance(model, str) else model
    return getattr(measuring, work)(build, batch)
