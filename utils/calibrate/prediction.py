"""A training run on a cluster, predicted from a profile: step, efficiency, bottleneck, hours, cost.

What is put together, all from `simulate`: a data-parallel step whose gradients are all-reduced
in buckets behind the backward pass (`step`), or pulled and pushed over the links of parameter
servers (`parameter_server`), the slowest device (`stragglers`), an input pipeline that overlaps
with the step, ZeRO's 16 bytes a parameter (`memory`), and failures at the best checkpoint
interval (`failures`).

In strong scaling the batch of the profile is shared by all replicas; in weak scaling each has
it. A device of a known machine computes at `mfu` of its peak, and never quicker than it launches
the step's operations. A model that has to be cut is described by its shape instead
(`simulate.planner`). NumPy at most.
"""

import math
from dataclasses import dataclass, replace

from ..checks import check_choice, check_count, check_number
from ..errors import InputError
from ..simulate.collective import Link, Nodes
from ..simulate.failures import best_effective_time
from ..simulate.layouts import LAUNCH_SECONDS
from ..simulate.machines import USUAL_MFU, Machine
from ..simulate.memory import find_device_memory
from ..simulate.parameter_server import find_round_transfer
from ..simulate.step import Network, StepRun, StepWork, simulate_step
from ..simulate.units import ask
from .profile import MAX_SPREAD, Profile

SCALINGS = ("weak", "strong")
MIN_CHECKPOINT_SECONDS = 1e-3
MAX_DEVICES = 10**7


@dataclass(frozen=True)
class Scenario:
    """A scenario to predict: sizes, scaling, job, network, and the cost of failures and hours.

    `devices` are the sizes. `scaling` is "weak" (each device keeps its batch) or "strong" (the
    global batch stays). `examples` per epoch and `epochs` give hours and, with `price` per
    device-hour, the cost. `network` None takes the profile's link between processes, or
    `machine`'s. With `servers`, that many parameter servers hold the model, and no all-reduce runs.
    `node_mtbf_hours` is a node's mean time between failures. `zero_stage` is from 0 to 3. On
    another `machine`, a device reaches the fraction `mfu` of its peak. `jit_compile` and
    `steps_per_execution` are Keras's: both lower a step's time for launches. Raises InputError for
    a value out of range.

        >>> Scenario(devices=(1, 8), scaling="strong").zero_stage
        0
    """

    devices: tuple[int, ...] = (1, 2, 4, 8)
    scaling: str = ask("text", "weak: each device keeps its batch", "weak", SCALINGS)
    examples: int | None = ask("large", "examples in an epoch, for hours and cost", None)
    epochs: float | None = ask("number", "epochs to train, for hours and cost", None)
    network: Network | None = None
    servers: int | None = ask("whole", "parameter servers, instead of an all-reduce", None)
    node_mtbf_hours: float | None = ask("number", "hours between a node's failures", None)
    price: float | None = ask("number", "price of a device-hour", None)
    zero_stage: int = ask("whole", "ZeRO stage, 0 to 3", 0)
    machine: Machine | None = None
    mfu: float = ask("number", "fraction of the peak actually reached", USUAL_MFU)
    jit_compile: bool = ask(
        "flag", "compile with XLA, which fuses operations into fewer launches", False
    )
    steps_per_execution: int = ask("whole", "steps in one call, as in Keras", 1)

    def __post_init__(self) -> None:
        check_choice("scaling", self.scaling, SCALINGS)
        if not self.devices:
            raise InputError(
                "devices must name at least one number of devices, got none. Try 1,2,4."
            )
        for number in self.devices:
            check_count("devices", number, 1, MAX_DEVICES)
        check_count("steps_per_execution", self.steps_per_execution)
        check_count("zero_stage", self.zero_stage, 0, 3)
        for name in ("examples", "epochs", "node_mtbf_hours", "servers"):
            if getattr(self, name) is not None:
                check_number(name.replace("_", " "), getattr(self, name), above=0)
        if self.price is not None:
            check_number("price", self.price, least=0)
        if not 0 < self.mfu <= 1:
            raise InputError(f"mfu must be above 0 and at most 1, got {self.mfu:g}.")


@dataclass(frozen=True)
class Prediction:
    """A run on several devices; `parts` has the seconds of a step by what takes them.

    `low` and `high` are the range of `step_seconds`. `efficiency` is throughput over
    (devices x one device's when it never waits, not even for its input): if the input is the
    bottleneck, it is low on one device already. `bottleneck` is the largest part of `parts`.
    `hours` and `cost` include failures; None if not enough is known.

    A run that doesn't fit can't exist, so nothing of it is predicted: `bottleneck` is "memory",
    the numbers are None, and `advice` says what overflows and the cheapest change.
    """

    devices: int
    bottleneck: str
    bytes_per_device: float
    step_seconds: float | None = None
    low: float | None = None
    high: float | None = None
    efficiency: float | None = None
    hours: float | None = None
    cost: float | None = None
    parts: dict[str, float] | None = None
    effective_time: float | None = None
    advice: str = ""

    @property
    def fits(self) -> bool:
        return self.step_seconds is not None


def predict(profile: Profile, scenario: Scenario) -> list[Prediction]:
    """Predict the training of `profile`'s model for each size in `scenario.devices`.

    Returns a prediction for each size, in their order, times in seconds. Raises InputError if the
    network isn't known, and if strong scaling leaves a replica less than one example.

        >>> profile = Profile(forward_seconds=0.01, backward_seconds=0.02, gradient_bytes=4e6)
        >>> network = Network(Link(latency_seconds=1e-5, bandwidth_bytes_per_second=1.25e10))
        >>> len(predict(profile, Scenario(devices=(1, 2), network=network)))
        2
    """
    profile = project_onto_machine(profile, scenario)
    network = find_network(profile, scenario)
    return [_predict_one(profile, scenario, network, devices) for devices in scenario.devices]


def project_onto_machine(profile: Profile, scenario: Scenario) -> Profile:
    """Return the profile as the machine of `scenario` would run it; itself without one."""
    if scenario.machine is None:
        return profile
    if profile.flops_per_example <= 0:
        raise InputError(
            "The profile has no flops_per_example, so its time on another device isn't "
            "known. Measure it with `distlab plan`, which stores them."
        )
    seconds = profile.batch * profile.flops_per_example
    seconds /= scenario.machine.peak_flops * scenario.mfu
    forward = seconds * profile.forward_seconds / profile.compute_seconds
    return replace(
        profile,
        forward_seconds=forward,
        backward_seconds=seconds - forward,
        fixed_seconds=0.0,
        local=None,
    )


def find_launch_seconds(profile: Profile, scenario: Scenario) -> float:
    """Return the least that a step takes on the scenario's machine: its launches.

    The operations of the traced step at 4 µs each, those that XLA can't fuse away with
    `jit_compile`, and one call from Python for every `steps_per_execution` steps. 0 without a
    machine, since times measured here include their launches.
    """
    if scenario.machine is None:
        return 0.0
    count = profile.compiled_operations if scenario.jit_compile else profile.operations
    return count * LAUNCH_SECONDS + profile.call_seconds / scenario.steps_per_execution


def find_network(profile: Profile, scenario: Scenario) -> Network:
    """Return the network of `scenario`, its machine's, or the link that the profile measured."""
    machine = scenario.machine
    if scenario.network is not None:
        return scenario.network
    if machine is None:
        if profile.latency_seconds is None or profile.bandwidth_bytes_per_second is None:
            raise InputError("network must be stated, since the profile has none. Try 100Gb/s.")
        return Network(Link(profile.latency_seconds, profile.bandwidth_bytes_per_second))
    inside = machine.ranks_per_node
    if max(scenario.devices) <= inside:
        return Network(machine.find_link(inside if machine.node_bytes_per_second else 2))
    link = machine.find_link(max(scenario.devices))
    nodes = Nodes(inside, machine.find_link(inside)) if inside > 1 else None
    return Network(link, nodes, machine.network.measured)


def _predict_one(
    profile: Profile, scenario: Scenario, network: Network, devices: int
) -> Prediction:
    batch = profile.batch if scenario.scaling == "weak" else profile.batch / devices
    if batch < 1:
        raise InputError(
            f"Strong scaling over {devices} devices leaves {batch:g} examples per replica. "
            f"devices must be at most the batch, {profile.batch}."
        )
    share = batch / profile.batch
    held = _find_memory(profile, scenario.zero_stage, devices, share)
    if scenario.machine is not None and held > scenario.machine.memory_gb * 1e9:
        advice = _advise_memory(profile, scenario, devices, share)
        return Prediction(devices, "memory", held, advice=advice)
    launches = find_launch_seconds(profile, scenario)
    work = _cut_work(profile, share)
    waits = max(0.0, launches - work.compute_seconds)
    run = _simulate(profile, scenario, network, devices, work, waits)
    input_wait = max(0.0, profile.input_seconds * share - run.step_seconds)
    step = run.step_seconds + input_wait
    effective = _find_effective_time(profile, scenario, devices, network)
    parts = {
        "computation": work.compute_seconds,
        "launches": waits,
        "network": run.exposed_communication_seconds + run.work.update_seconds,
        "stragglers": run.straggler_seconds,
        "input": input_wait,
        "failures": step * (1 / effective - 1) if effective > 0 else math.inf,
    }
    alone = profile.batch / max(profile.compute_seconds, launches)  # examples/s of one device
    rate = batch * devices / step
    hours, cost = _find_bill(scenario, devices, rate, effective)
    spread = min(MAX_SPREAD, profile.spread)
    return Prediction(
        devices,
        max(parts, key=parts.get),
        held,
        step,
        step * (1 - spread),
        step * (1 + spread),
        rate / (devices * alone),
        hours,
        cost,
        parts,
        effective,
    )


def _simulate(
    profile: Profile,
    scenario: Scenario,
    network: Network,
    devices: int,
    work: StepWork,
    waits: float,
) -> StepRun:
    """Return the step with its all-reduce, or with the pulls and pushes of parameter servers."""
    longer = 1 + waits / work.compute_seconds
    work = replace(
        work,
        forward_seconds=work.forward_seconds * longer,
        backward_seconds=work.backward_seconds * longer,
    )
    if scenario.servers is None:
        return simulate_step(work, devices, network, straggler_sigma=profile.straggler_sigma)
    moved = find_round_transfer(
        profile.gradient_bytes,
        devices,
        scenario.servers,
        network.link.bandwidth_bytes_per_second,
        work.backward_seconds,
    )
    work = replace(work, gradient_bytes=0.0, update_seconds=moved)
    return simulate_step(work, devices, network, straggler_sigma=profile.straggler_sigma)


def _cut_work(profile: Profile, share: float) -> StepWork:
    """Return what one device does in a step of `share` of the profile's batch."""
    whole = profile.compute_seconds
    part = (profile.fixed_seconds + (whole - profile.fixed_seconds) * share) / whole
    return StepWork(
        profile.forward_seconds * part, profile.backward_seconds * part, profile.gradient_bytes
    )


def _find_effective_time(
    profile: Profile, scenario: Scenario, devices: int, network: Network
) -> float:
    """Return the share of time that trains, at the best checkpoint interval."""
    if scenario.node_mtbf_hours is None:
        return 1.0
    per_node = network.nodes.ranks_per_node if network.nodes else 1
    mtbf = scenario.node_mtbf_hours * 3600 / math.ceil(devices / per_node)
    save = max(MIN_CHECKPOINT_SECONDS, profile.checkpoint_seconds)
    return best_effective_time(save, mtbf, profile.restart_seconds)


def _find_bill(
    scenario: Scenario, devices: int, rate: float, effective: float
) -> tuple[float | None, float | None]:
    if scenario.examples is None or scenario.epochs is None or effective <= 0:
        return None, None
    hours = scenario.examples * scenario.epochs / rate / effective / 3600
    price = scenario.price
    return hours, None if price is None else hours * devices * price


def _find_memory(profile: Profile, stage: int, devices: int, share: float) -> float:
    activations = profile.activation_bytes * share
    return find_device_memory(
        profile.parameter_count, devices, stage, activation_bytes=activations
    ).total


def _advise_memory(profile: Profile, scenario: Scenario, devices: int, share: float) -> str:
    """Return what overflows and the cheapest change: ZeRO costs less than a smaller batch."""
    capacity, name = scenario.machine.memory_gb * 1e9, scenario.machine.name
    held = _find_memory(profile, scenario.zero_stage, devices, share)
    activations = profile.activation_bytes * share
    part = "activations" if activations > held - activations else "weights and optimizer state"
    said = (
        f"needs {held / 1e9:,.0f} GB per device, {name} has {capacity / 1e9:,.0f} GB; {part} "
        "overflow."
    )
    for stage in range(scenario.zero_stage + 1, 4):
        if _find_memory(profile, stage, devices, share) <= capacity:
            return f"{said} Use ZeRO stage {stage}."
    room = capacity - (held - activations)
    batch = int(profile.batch * share * room / activations) if activations else 0
    if batch >= 1:
        return f"{said} Use at most {batch:,} examples per device, and accumulate."
    return f"{said} Describe the model by its shape (--parameters), so that it can be cut."
