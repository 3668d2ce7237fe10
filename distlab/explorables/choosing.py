"""The choosing explorer: five answers about a job in; a strategy, its reasons and a plan out."""

import html
from dataclasses import dataclass, replace

from distlab.explorables.controls import Choice, Slider
from distlab.explorables.explorer import Explorer, explore
from distlab.figures.canvas import say_number
from utils.calibrate import Choice as Wanted
from utils.calibrate import Prediction, Profile, find_machine, predict

BYTES_A_PARAMETER = 16  # mixed precision and Adam
TOKENS, OPERATIONS = 512, 6  # of an example, and for each parameter and token
BATCH = 32
PLACES = ("one machine", "several machines, steady", "many machines that come and go")
DATA = {"fits in memory": 0.0, "files on disk": 0.001, "needs much preparation": 0.02}
SHORT_HOURS = 12


@dataclass(frozen=True)
class Advice:
    """What to use, why (one sentence each), and the plan's numbers for it."""

    strategy: str
    reasons: tuple[str, ...]
    row: Prediction
    alone: Prediction


def advise(
    parameters: float, examples: float, devices: int, place: str, data: str, mtbf_days: float
) -> Advice:
    """Return the advice for a dense model trained once through `examples` of 512 tokens on A100s.

    `place` is one of PLACES, `data` a key of DATA.
    """
    profile = Profile(
        1.0, 2.0, 2 * parameters, batch=BATCH, parameters=parameters,
        operations_per_example=OPERATIONS * parameters * TOKENS,
        input_seconds=DATA[data] * BATCH, straggler_sigma=0.05,
        checkpoint_seconds=max(1.0, 14 * parameters / 2e9), restart_seconds=300,
    )  # fmt: skip
    network = "HDR" if place != PLACES[2] else "10GbE"
    wanted = Wanted(
        (1, devices), examples=int(examples), epochs=1, machine=find_machine(f"A100 on {network}"),
        node_mtbf_hours=24 * mtbf_days, zero_stage=0,
    )  # fmt: skip
    alone, row = predict(replace(profile, spread=0.2), wanted)
    strategy, reasons = _choose(parameters, devices, place, alone, row)
    return Advice(strategy, (*reasons, *_warn(data, row)), row, alone)


def _choose(
    parameters: float, devices: int, place: str, alone: Prediction, row: Prediction
) -> tuple[str, list[str]]:
    """Return the strategy and the reasons that decide it."""
    gigabytes, memory = BYTES_A_PARAMETER * parameters / 1e9, find_machine("A100").memory_gb
    if gigabytes > memory * devices:
        return "not TensorFlow", [
            f"The training state takes {say_number(gigabytes)} GB, more than all devices hold.",
            "Even ZeRO's stage 3 cannot place it: take more devices, or a smaller model.",
        ]
    if gigabytes > memory:
        return "not TensorFlow", [
            f"The training state takes {say_number(gigabytes)} GB, a device holds {memory:g}.",
            "It has to be cut. TensorFlow's DTensor can, but PyTorch FSDP, Megatron-LM and JAX do "
            "it with less work of yours.",
        ]
    if devices == 1 or (alone.hours is not None and alone.hours <= SHORT_HOURS):
        return "one device", [
            f"One device takes {say_number(alone.hours)} hours: nothing to set up, nothing to fail."
        ]
    if place == PLACES[0]:
        return "MirroredStrategy", [
            "All devices are in one machine: one process, and fit works as it is."
        ]
    if place == PLACES[2]:
        return "ParameterServerStrategy", [
            "Workers come and go: here a worker that leaves loses its step, and nobody waits.",
            "Its updates are stale; compare the accuracy on a small run first.",
        ]
    return "MultiWorkerMirroredStrategy", [
        "Steady machines and synchronous steps: the result is that of one large batch.",
        f"Every failure stops all {devices:,} devices: it needs checkpoints and restarts.",
    ]


def _warn(data: str, row: Prediction) -> list[str]:
    """Return what else the plan says."""
    said = {
        "network": "The network is the limit: a larger batch per device, or fewer devices.",
        "input": "The input is the limit: lesson 12 first, then more devices.",
        "failures": "Failures are the limit: save faster, or restart faster.",
        "stragglers": "The slowest device is the limit.",
    }
    return [said[row.limit]] if row.limit in said else []


def describe(advice: Advice) -> str:
    """Return the advice as HTML."""
    row, alone = advice.row, advice.alone
    reasons = "".join(f"<li>{html.escape(reason)}</li>" for reason in advice.reasons)
    plan = (
        f"Plan for {row.devices:,} A100s: {say_number(row.hours)} hours at "
        f"{100 * row.efficiency:.0f} % efficiency (one device: {say_number(alone.hours)} hours), "
        f"{say_number(row.bytes_per_device / 1e9)} GB on each; limit: {row.limit}."
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
