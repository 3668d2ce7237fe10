"""A training run on a cluster, predicted from a profile: step, efficiency, limit, hours, cost.

What is put together, all from `simulate`: a data-parallel step whose gradients are
all-reduced in buckets behind the backward pass (`step`), the slowest device
(`stragglers`), an input pipeline that overlaps with the step, ZeRO's 16 bytes a parameter
(`memory`), and failures at the best checkpoint interval (`failures`).

A model cut into T x S devices (tensor, pipeline) computes 1/(T S) on each; a pipeline of S
stages idles (S - 1)/M of the time over M = 4 S micro-batches; what tensor parallelism
sends is left out. In strong scaling the batch of the profile is shared by all replicas; in
weak scaling each has it. A device of a known machine computes at `mfu` of its peak.
NumPy at most.
"""

import math
from dataclasses import dataclass, replace

from ..checks import check_choice, check_count, check_number
from ..errors import InputError
from ..simulate.collective import Link, Nodes
from ..simulate.failures import best_interval_seconds, effective_time_fraction
from ..simulate.memory import find_device_memory
from ..simulate.step import Network, StepWork, simulate_step
from .machines import USUAL_MFU, Machine
from .profile import MAX_SPREAD, Profile

SCALINGS = ("weak", "strong")
LIMITS = ("computation", "network", "stragglers", "input", "failures", "memory")
MICRO_BATCHES_PER_STAGE = 4
MIN_CHECKPOINT_SECONDS = 1e-3
MAX_DEVICES = 10**7


@dataclass(frozen=True)
class Choice:
    """What to predict: sizes, scaling, the job, the network, and what failures and hours cost.

    `network` None takes the profile's link between processes, or the machine's. `memory_bytes`
    None: no limit is known. Raises InputError for numbers that cannot be.
    """

    devices: tuple[int, ...] = (1, 2, 4, 8)
    scaling: str = "weak"
    examples: int | None = None
    epochs: float | None = None
    network: Network | None = None
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    node_mtbf_hours: float | None = None
    price_per_device_hour: float | None = None
    zero_stage: int = 0
    machine: Machine | None = None
    mfu: float = USUAL_MFU

    def __post_init__(self) -> None:
        check_choice("scaling", self.scaling, SCALINGS)
        if not self.devices:
            raise InputError("devices: give one number or more")
        for name, value, most in (
            *(("devices", n, MAX_DEVICES) for n in self.devices),
            ("tensor parallel", self.tensor_parallel, 10**5),
            ("pipeline parallel", self.pipeline_parallel, 10**5),
        ):
            check_count(name, value, 1, most)
        for name in ("examples", "epochs", "node_mtbf_hours"):
            if getattr(self, name) is not None:
                check_number(name.replace("_", " "), getattr(self, name), above=0)
        if self.price_per_device_hour is not None:
            check_number("price per device hour", self.price_per_device_hour, least=0)
        if not 0 < self.mfu <= 1:
            raise InputError(f"mfu {self.mfu:g}: must be above 0, at most 1")
        for number in self.devices:
            if number % self.shards:
                raise InputError(
                    f"devices {number}: is no multiple of tensor parallel x pipeline parallel, "
                    f"{self.shards}"
                )

    @property
    def shards(self) -> int:
        """Devices that hold one copy of the model."""
        return self.tensor_parallel * self.pipeline_parallel


@dataclass(frozen=True)
class Prediction:
    """A run on so many devices; `parts` are the seconds of a step by what they go to.

    `low` and `high` are the range of `step_seconds`. `efficiency` is throughput over
    (devices x one device's when it never waits, not even for its input): where the input is
    the limit it is low on one device already. `limit` is the largest part of `parts`, or
    "memory" where the model does not fit. `hours` and `cost` include failures; None where
    not enough is known.
    """

    devices: int
    step_seconds: float
    low: float
    high: float
    efficiency: float
    limit: str
    hours: float | None
    cost: float | None
    parts: dict[str, float]
    effective_time: float
    bytes_per_device: float


def predict(profile: Profile, choice: Choice) -> list[Prediction]:
    """Return a prediction for each size of `choice.devices`, in their order.

    Raises InputError where the network is not known, and where strong scaling leaves a
    replica less than one example.
    """
    profile = place_on(profile, choice)
    network = find_network(profile, choice)
    return [_predict_one(profile, choice, network, devices) for devices in choice.devices]


def place_on(profile: Profile, choice: Choice) -> Profile:
    """Return the profile as the machine of `choice` would run it; itself without one."""
    if choice.machine is None:
        return profile
    if profile.operations_per_example <= 0:
        raise InputError(
            "machine: the profile has no operations_per_example, so its time on other devices is "
            "not known"
        )
    rate = choice.machine.peak_tflops * 1e12 * choice.mfu
    seconds = profile.batch * profile.operations_per_example / rate
    forward = seconds * profile.forward_seconds / profile.compute_seconds
    return replace(
        profile, forward_seconds=forward, backward_seconds=seconds - forward, fixed_seconds=0.0,
        local=None,
    )  # fmt: skip


def find_network(profile: Profile, choice: Choice) -> Network:
    """Return the network of `choice`, its machine's, or the link that the profile measured."""
    if choice.network is not None:
        return choice.network
    machine = choice.machine
    if machine is not None:
        inside = Link(machine.node_latency_us / 1e6, machine.node_gbps * 1e9)
        if machine.network_gbps is not None:
            link = Link(machine.network_latency_us / 1e6, machine.network_gbps * 1e9)
            return Network(link, Nodes(machine.ranks_per_node, inside))
        if max(choice.devices) <= machine.ranks_per_node:
            return Network(inside)
        raise InputError(
            f"machine {machine.name}: holds {machine.ranks_per_node} devices; say what joins the "
            f'nodes, as in "{machine.name} on 400 Gb/s"'
        )
    if profile.latency_us is None or profile.bandwidth_gbps is None:
        raise InputError("network: give a latency and a bandwidth; the profile has none")
    return Network(Link(profile.latency_us / 1e6, profile.bandwidth_gbps * 1e9))


def _predict_one(profile: Profile, choice: Choice, network: Network, devices: int) -> Prediction:
    replicas = devices // choice.shards
    batch = profile.batch if choice.scaling == "weak" else profile.batch / replicas
    if batch < 1:
        raise InputError(
            f"devices {devices}: strong scaling leaves {batch:g} examples for each of {replicas} "
            f"replicas; the batch is {profile.batch}"
        )
    share = batch / profile.batch
    run = simulate_step(
        _cut_work(profile, choice, share), replicas, network,
        straggler_sigma=profile.straggler_sigma,
    )  # fmt: skip
    input_wait = max(0.0, profile.input_seconds * share - run.step_seconds)
    step = run.step_seconds + input_wait
    effective = _find_effective_time(profile, choice, devices, network)
    parts = {
        "computation": run.work.compute_seconds,
        "network": run.exposed_communication_seconds,
        "stragglers": run.straggler_seconds,
        "input": input_wait,
        "failures": step * (1 / effective - 1) if effective > 0 else math.inf,
    }
    alone = profile.batch / profile.compute_seconds  # examples a second of one device
    rate = batch * replicas / step
    hours, cost = _find_bill(choice, devices, rate, effective)
    held = _find_memory(profile, choice, replicas, share)
    spread = min(MAX_SPREAD, profile.spread)
    limit = max(parts, key=parts.get)
    if choice.machine is not None and held > choice.machine.memory_gb * 1e9:
        limit = "memory"
    return Prediction(
        devices, step, step * (1 - spread), step * (1 + spread), rate / (devices * alone), limit,
        hours, cost, parts, effective, held,
    )  # fmt: skip


def _cut_work(profile: Profile, choice: Choice, share: float) -> StepWork:
    """Return what one device does in a step of `share` of the profile's batch."""
    whole = profile.compute_seconds
    part = (profile.fixed_seconds + (whole - profile.fixed_seconds) * share) / whole
    stages = choice.pipeline_parallel
    idle = 1 + (stages - 1) / (MICRO_BATCHES_PER_STAGE * stages)
    scale = part * idle / choice.shards
    return StepWork(
        profile.forward_seconds * scale, profile.backward_seconds * scale,
        profile.gradient_bytes / choice.shards,
    )  # fmt: skip


def _find_effective_time(profile: Profile, choice: Choice, devices: int, network: Network) -> float:
    """Return the share of time that trains, at the best checkpoint interval."""
    if choice.node_mtbf_hours is None:
        return 1.0
    per_node = network.nodes.ranks_per_node if network.nodes else 1
    mtbf = choice.node_mtbf_hours * 3600 / math.ceil(devices / per_node)
    save = max(MIN_CHECKPOINT_SECONDS, profile.checkpoint_seconds)
    best = best_interval_seconds(save, mtbf)
    return effective_time_fraction(best, save, mtbf, profile.restart_seconds)


def _find_bill(
    choice: Choice, devices: int, rate: float, effective: float
) -> tuple[float | None, float | None]:
    if choice.examples is None or choice.epochs is None or effective <= 0:
        return None, None
    hours = choice.examples * choice.epochs / rate / effective / 3600
    price = choice.price_per_device_hour
    return hours, None if price is None else hours * devices * price


def _find_memory(profile: Profile, choice: Choice, replicas: int, share: float) -> float:
    return find_device_memory(
        profile.parameter_count, replicas, choice.zero_stage,
        tensor_parallel=choice.tensor_parallel, pipeline_parallel=choice.pipeline_parallel,
        activation_bytes=profile.activation_bytes * share / choice.shards,
    ).total  # fmt: skip
