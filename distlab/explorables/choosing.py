"""The choosing explorer: five answers about a job in; a strategy, its reasons and a plan out."""

import html
from dataclasses import dataclass, replace

from distlab.explorables.controls import Choice, Slider
from distlab.explorables.explorer import Explorer, explore
from distlab.figures.canvas import say_number
from utils.calibrate import Prediction, Profile, Scenario, find_machine, predict

BYTES_A_PARAMETER = 16  # mixed precision and Adam
TOKENS, FLOPS = 512, 6  # of an example, and for each parameter and token
BATCH = 32
PLACES = ("one machine", "several machines, steady", "many machines that come and go")
DATA = {"fits in memory": 0.0, "files on disk": 0.001, "needs much preparation": 0.02}
SHORT_HOURS = 12
WORKERS_A_SERVER = 16


@dataclass(frozen=True)
class Advice:
    """What to use, why (one sentence each), and the plan's numbers; None if no device holds it."""

    strategy: str
    reasons: tuple[str, ...]
    row: Prediction | None
    alone: Prediction | None


def advise(
    parameters: float, examples: float, devices: int, place: str, data: str, mtbf_days: float
) -> Advice:
    """Return the advice for a dense model trained once through `examples` of 512 tokens on A100s.

    `place` is one of PLACES, `data` a key of DATA.
    """
    profile = Profile(
        1.0, 2.0, 2 * parameters, batch=BATCH, parameters=parameters,
        flops_per_example=FLOPS * parameters * TOKENS,
        input_seconds=DATA[data] * BATCH, straggler_sigma=0.05,
        checkpoint_seconds=max(1.0, 14 * parameters / 2e9), restart_seconds=300,
    )  # fmt: skip
    machine = find_machine(f"A100 on {'HDR' if place != PLACES[2] else '10GbE'}")
    scenario = Scenario(
        (1, devices),
        examples=int(examples),
        epochs=1,
        machine=machine,
        node_mtbf_hours=24 * mtbf_days,
    )
    if BYTES_A_PARAMETER * parameters > machine.memory_gb * 1e9:
        return Advice(*_advise_cut(parameters, devices, machine.memory_gb), None, None)
    alone, row = predict(profile, scenario)
    served = None
    if place == PLACES[2]:
        servers = max(1, devices // WORKERS_A_SERVER)
        alike = replace(scenario, devices=(devices,), servers=servers, node_mtbf_hours=None)
        (served,) = predict(replace(profile, straggler_sigma=0.0), alike)  # nobody waits
    strategy, reasons, row = _choose(devices, place, alone, row, served)
    return Advice(strategy, (*reasons, *_warn(row)), row, alone)


def _advise_cut(parameters: float, devices: int, memory_gb: float) -> tuple[str, tuple[str, ...]]:
    """Return the advice for a model that no single device holds: nothing of it is predicted."""
    gigabytes = BYTES_A_PARAMETER * parameters / 1e9
    if gigabytes > memory_gb * devices:
        return "not TensorFlow", (
            f"The training state takes {say_number(gigabytes)} GB, more than all devices hold.",
            "Even ZeRO's stage 3 cannot place it: take more devices, or a smaller model.",
        )
    return "not TensorFlow", (
        f"The training state takes {say_number(gigabytes)} GB, a device holds {memory_gb:g}.",
        "It has to be cut. TensorFlow's DTensor can, but PyTorch FSDP, Megatron-LM and JAX do it "
        "with less work of yours. distlab plan --parameters finds the cut.",
    )


def _choose(
    devices: int, place: str, alone: Prediction, row: Prediction, served: Prediction | None
) -> tuple[str, tuple[str, ...], Prediction]:
    """Return the strategy, the reasons that decide it, and its prediction."""
    if devices == 1 or (alone.hours is not None and alone.hours <= SHORT_HOURS):
        hours = say_number(alone.hours)
        return (
            "one device",
            (f"One device takes {hours} hours: nothing to set up or to fail.",),
            row,
        )
    if place == PLACES[0]:
        reason = "All devices are in one machine: one process, and fit works as it is."
        return "MirroredStrategy", (reason,), row
    steady = (
        "Steady machines and synchronous steps: the result is that of one large batch.",
        f"Every failure stops all {devices:,} devices: it needs checkpoints and restarts.",
    )
    if served is None:
        return "MultiWorkerMirroredStrategy", steady, row
    if row.hours is not None and served.hours > row.hours:
        hours = f"{say_number(served.hours)} hours"
        return (
            "MultiWorkerMirroredStrategy",
            (
                f"Parameter servers would take {hours}: all workers pull over the servers' links.",
                "So train synchronously, and restart from a checkpoint when a machine leaves.",
            ),
            row,
        )
    return (
        "ParameterServerStrategy",
        (
            "Workers come and go: here a worker that leaves loses its step, and nobody waits.",
            "Its updates are stale; compare the accuracy on a small run first.",
        ),
        served,
    )


def _warn(row: Prediction) -> list[str]:
    """Return what else the plan says."""
    said = {
        "network": "The network is the bottleneck: a larger batch per device, or fewer devices.",
        "input": "The input is the bottleneck: lesson 12 first, then more devices.",
        "failures": "Failures are the bottleneck: save faster, or restart faster.",
        "stragglers": "The slowest device is the bottleneck.",
    }
    return [said[row.bottleneck]] if row.bottleneck in said else []


def describe(advice: Advice) -> str:
    """Return the advice as HTML."""
    row, alone = advice.row, advice.alone
    plan = "No plan: nothing is predicted for a run that can't exist."
    reasons = "".join(f"<li>{html.escape(reason)}</li>" for reason in advice.reasons)
    if row is not None:
        plan = (
            f"Plan for {row.devices:,} A100s: {say_number(row.hours)} hours at "
            f"{100 * row.efficiency:.0f} % efficiency (one device: {say_number(alone.hours)} "
            f"hours), {say_number(row.bytes_per_device / 1e9)} GB on each; bottleneck: "
            f"{row.bottleneck}."
        )
    return f"<p><strong>{advice.strategy}</strong></p><ul>{reasons}</ul><p>{plan}</p>"


def choosing_explorer() -> Explorer:
    """Ask five things about a job and answer with a strategy, its reasons and a plan."""

    def show(
        parameters: int, examples: int, devices: int, place: str, data: str, mtbf_days: int
    ) -> str:
        sizes = 10.0**parameters, 10.0**examples, 2**devices
        return describe(advise(*sizes, place, data, mtbf_days))

    return explore(
        show,
        parameters=Slider("Parameters", 6, 12, 9, 0.5, grid=(8, 9, 10, 11), base=10),
        examples=Slider("Examples", 4, 10, 7, 0.5, grid=(6, 7, 9), base=10),
        devices=Slider("Devices", 0, 12, 6, grid=(0, 3, 6, 10), base=2),
        place=Choice("Where they are", list(PLACES), PLACES[1]),
        data=Choice("The data", list(DATA), "files on disk"),
        mtbf_days=Slider("A node fails every", 1, 1000, 200, 1, "days", grid=(10, 200)),
    )
