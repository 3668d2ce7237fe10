"""The choosing explorer: a decision as data; a job in, its path, a strategy and a plan out.

`QUESTIONS` is the whole decision. The first one that holds decides, and its limit is compared with
the planner's numbers. The tree is drawn from it, and the advice reads from it.
"""

import html
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from distlab.explorables.advice_map import DEVICES, SIZES, draw_map
from distlab.explorables.controls import Choice, Slider
from distlab.explorables.explorer import Explorer, Try, explore
from distlab.figures import Picture
from distlab.figures.canvas import say_number
from distlab.figures.palette import GREEN
from utils.calibrate import Machine, Prediction, Profile, Scenario, find_machine, predict
from utils.measure import count

BYTES_A_PARAMETER = 16  # mixed precision and Adam
TOKENS, FLOPS = 512, 6  # of an example, and for each parameter and token
BATCH = 32
PLACES = {  # the network, and the days until a node fails
    "one machine": ("HDR", 200),
    "several machines, steady": ("HDR", 200),
    "many machines that come and go": ("10GbE", 1),
}
HERE, STEADY, SPARE = PLACES
DATA = {"fits in memory": 0.0, "files on disk": 0.001, "needs much preparation": 0.02}
SHORT_HOURS = 12
WORKERS_A_SERVER = 16


@dataclass(frozen=True)
class TrainingJob:
    """So many independent `runs`, each once through `examples` of 512 tokens, on A100s.

    `place` is a key of PLACES, `data` one of DATA.
    """

    parameters: float
    examples: float
    devices: int
    place: str = STEADY
    data: str = "files on disk"
    runs: int = 1


Numbers = Mapping[str, float]


@dataclass(frozen=True)
class Question:
    """A question, and what a yes advises; `found` and `reasons` take the plan's numbers.

    `limit` says what the answer is compared with, `hours` which of the plan's hours the advice has.
    """

    text: str
    limit: str
    found: str
    holds: Callable[[TrainingJob, Numbers], bool]
    advice: str
    reasons: Sequence[str]
    hours: str = ""


QUESTIONS = (
    Question(
        "Is the model larger than all devices together?",
        f"{BYTES_A_PARAMETER} bytes for each parameter: weights, gradients, Adam",
        "The training state takes {state} GB, all devices hold {together} GB.",
        lambda job, n: n["state"] > n["together"],
        "more devices",
        ["Even ZeRO's stage 3 can't place it. Take more devices, or a smaller model."],
    ),
    Question(
        "Is it larger than one device?",
        "the memory of an A100, 80 GB",
        "The training state takes {state} GB, one device holds {memory} GB.",
        lambda job, n: n["state"] > n["memory"],
        "not TensorFlow",
        [
            "It has to be cut. TensorFlow's DTensor can, but PyTorch FSDP, Megatron-LM and JAX do "
            "it with less work of yours. distlab plan --parameters finds the cut."
        ],
    ),
    Question(
        "Are there independent runs, and do they end sooner apart?",
        "each on one device, against one after the other on all of them",
        "{runs}: {apart} hours apart, {in_turn} hours one after the other.",
        lambda job, n: job.runs > 1 and n["apart"] < n["in_turn"],
        "distlab run --independent",
        [
            "Nobody waits for anybody: no cluster, no all-reduce, no large batch to tune.",
            "A failure costs one run, and that one starts again alone.",
        ],
        "apart",
    ),
    Question(
        "Is one device quick enough?",
        f"{SHORT_HOURS} hours",
        "One device takes {one} hours.",
        lambda job, n: job.devices == 1 or n["one"] <= SHORT_HOURS,
        "one device",
        ["There's nothing to set up, and nothing to lose when another machine fails."],
        "one",
    ),
    Question(
        "Are all devices in one machine?",
        "no network between them",
        "{devices} devices: {place}.",
        lambda job, n: job.place == HERE,
        "MirroredStrategy",
        ["All devices are in one machine: one process, and fit works as it is."],
        "in_turn",
    ),
    Question(
        "Do machines come and go, and are parameter servers quicker?",
        f"one server for {WORKERS_A_SERVER} workers, and the links that it has",
        "Parameter servers take {served} hours, synchronous steps {in_turn} hours.",
        lambda job, n: job.place == SPARE and n["served"] < n["in_turn"],
        "ParameterServerStrategy",
        [
            "Workers come and go: here a worker that leaves loses its step, and nobody waits.",
            "Its updates are stale. Compare the accuracy on a small run first.",
        ],
        "served",
    ),
)
OTHERWISE = Question(
    "",
    "",
    "",
    lambda job, n: True,
    "MultiWorkerMirroredStrategy",
    [
        "Synchronous steps: the result is that of one large batch.",
        "Each failure stops all {devices} devices, so it needs checkpoints and restarts.",
    ],
    "in_turn",
)


@dataclass(frozen=True)
class Advice:
    """The choice and its reason; each question with its answer; the plan's numbers.

    `hours` is for all runs, done as advised. `row` is one run on all devices (with parameter
    servers if they are the advice), `alone` one run on one device. All are None if no device
    holds the model: nothing is predicted for a run that can't exist.
    """

    strategy: str
    reasons: tuple[str, ...]
    path: tuple[tuple[str, bool], ...]
    hours: float | None
    row: Prediction | None
    alone: Prediction | None


def advise(job: TrainingJob) -> Advice:
    """Return the first question of QUESTIONS that holds for `job`, as advice."""
    machine = _find_machine(job)
    numbers = {
        "state": BYTES_A_PARAMETER * job.parameters / 1e9,
        "memory": machine.memory_gb,
        "together": machine.memory_gb * job.devices,
        "runs": job.runs,
        "devices": job.devices,
    }
    alone = row = served = None
    if numbers["state"] <= numbers["memory"]:
        alone, row, served = _predict(replace(job, runs=1))
        numbers |= {
            "one": job.runs * _read_hours(alone),
            "in_turn": job.runs * _read_hours(row),
            "served": job.runs * _read_hours(served),
            "apart": math.ceil(job.runs / job.devices) * _read_hours(alone),
        }
    words = {name: say_number(value) for name, value in numbers.items()}
    words |= {"place": job.place, "runs": count(job.runs, "run")}
    path = []
    for question in (*QUESTIONS, OTHERWISE):
        yes = question.holds(job, numbers)
        path.append((question.found.format(**words), yes))
        if yes:
            break
    row = served if question.hours == "served" else row
    reasons = [reason.format(**words) for reason in question.reasons]
    reasons += _warn(row)
    hours = numbers.get(question.hours)
    return Advice(question.advice, tuple(reasons), tuple(path), hours, row, alone)


def _read_hours(row: Prediction) -> float:
    return math.inf if row.hours is None else row.hours


def _find_machine(job: TrainingJob) -> Machine:
    return find_machine(f"A100 on {PLACES[job.place][0]}")


@lru_cache(maxsize=4096)
def _predict(job: TrainingJob) -> list[Prediction]:
    """Return a run on one device, on all of them, and on all with parameter servers."""
    machine = _find_machine(job)
    profile = Profile(
        1.0,
        2.0,
        2 * job.parameters,
        batch=BATCH,
        parameters=job.parameters,
        flops_per_example=FLOPS * job.parameters * TOKENS,
        input_seconds=DATA[job.data] * BATCH,
        straggler_sigma=0.05,
        checkpoint_seconds=max(1.0, 14 * job.parameters / 2e9),
        restart_seconds=300,
    )
    scenario = Scenario(
        (1, job.devices),
        examples=int(job.examples),
        epochs=1,
        machine=machine,
        node_mtbf_hours=24 * PLACES[job.place][1],
    )
    servers = max(1, job.devices // WORKERS_A_SERVER)
    alike = replace(scenario, devices=(job.devices,), servers=servers, node_mtbf_hours=None)
    nobody_waits = replace(profile, straggler_sigma=0.0)
    return [*predict(profile, scenario), *predict(nobody_waits, alike)]


def _warn(row: Prediction | None) -> list[str]:
    """Return what else the plan says."""
    said = {
        "network": "The network is the bottleneck: a larger batch per device, or fewer devices.",
        "input": "The input is the bottleneck: lesson 12 first, then more devices.",
        "failures": "Failures are the bottleneck: save faster, or restart faster.",
        "stragglers": "The slowest device is the bottleneck.",
    }
    return [said[row.bottleneck]] if row is not None and row.bottleneck in said else []


_ROW = "display:grid;grid-template-columns:minmax(0,7fr) minmax(0,4fr);gap:5px 10px;max-width:720px"
_BOX = (
    "border:{width}px solid {color};border-radius:6px;padding:0.25em 0.5em;align-self:center;"
    "overflow-wrap:anywhere;background:{paint}"
)


def draw_tree(asked: int) -> str:
    """Return the tree as HTML; the path through its first `asked` questions is lit.

    One more than there are questions lights the last advice.
    """
    boxes = []
    for number, question in enumerate(QUESTIONS):
        limit = f" <small>{html.escape(question.limit)}</small>"
        boxes.append(_draw_box(f"{number + 1}. {question.text}", number < asked, after=limit))
        boxes.append(_draw_box(question.advice, number == asked - 1, "yes → "))
    boxes.append(_draw_box(OTHERWISE.advice, asked > len(QUESTIONS), "no to all → "))
    return f'<div style="{_ROW};font-size:13px;line-height:1.3">{"".join(boxes)}</div>'


def _draw_box(text: str, lit: bool, before: str = "", after: str = "") -> str:
    paint = f"color-mix(in srgb, {GREEN} 22%, transparent)" if lit else "transparent"
    style = _BOX.format(width=2 if lit else 1, color=GREEN if lit else "#888", paint=paint)
    words = re.sub("(?<=[a-z])(?=[A-Z])", "<wbr>", html.escape(text))
    words = re.sub("--[a-z]+", r'<span style="white-space:nowrap">\g<0></span>', words)
    shown = f"<strong>{words}</strong>" if lit else words
    return f'<div style="{style}">{before}{shown}{after}</div>'


def describe(advice: Advice) -> str:
    """Return the advice as HTML, with the number that answered each question."""
    row, alone = advice.row, advice.alone
    plan = "No plan: nothing is predicted for a run that can't exist."
    if row is not None and alone is not None:
        plan = (
            f"Plan: {say_number(advice.hours)} hours in all. A run on {row.devices:,} A100s takes "
            f"{say_number(row.hours)} hours at {100 * row.efficiency:.0f} % efficiency, on one "
            f"{say_number(alone.hours)}; {say_number(row.bytes_per_device / 1e9)} GB on each; "
            f"bottleneck: {row.bottleneck}."
        )
    found = [f"{'yes' if yes else 'no'}: {words}" for words, yes in advice.path if words]
    reasons, asked = (
        "".join(f"<li>{html.escape(words)}</li>" for words in each)
        for each in (advice.reasons, found)
    )
    head = f"<p><strong>{advice.strategy}</strong></p>"
    numbers = f"<details><summary>The numbers that answered</summary><ol>{asked}</ol></details>"
    return f"{head}<ul>{reasons}</ul><p>{plan}</p>{numbers}"


ADVICE = {  # each advice that the tree can give, and its color on the map
    question.advice: idea
    for question, idea in zip(
        (*QUESTIONS, OTHERWISE),
        ("over", "wait", "data", "forward", "optimizer", "variables", "all-reduce"),
        strict=True,
    )
}


@lru_cache(maxsize=64)
def _map_advice(examples: float, place: str, runs: int) -> str:
    """Return the advice for each size (from the largest one) and number of devices, as digits."""
    names = list(ADVICE)
    jobs = (
        TrainingJob(10.0**size, 10.0**examples, 2**devices, place, runs=2**runs)
        for size in SIZES
        for devices in DEVICES
    )
    return "".join(str(names.index(advise(job).strategy)) for job in jobs)


def choosing_explorer() -> Explorer:
    """Map what is advised, light a job's path through the tree, and describe its plan."""

    def show(
        parameters: float, devices: int, place: str, runs: int, examples: float
    ) -> list[Picture | str]:
        advice = advise(
            TrainingJob(10.0**parameters, 10.0**examples, 2**devices, place, runs=2**runs)
        )
        cells = _map_advice(examples, place, runs)
        drawn = draw_map(cells, ADVICE, (parameters, devices), advice.strategy)
        return [drawn, describe(advice), draw_tree(len(advice.path))]

    start = {"parameters": 9, "devices": 6, "place": STEADY, "runs": 0, "examples": 7}

    def ask(question: str, act: dict[str, float | str], after: str) -> Try:
        now = start | act
        sizes = 10.0 ** now["parameters"], 10.0 ** now["examples"], 2 ** now["devices"]
        advice = advise(TrainingJob(*sizes, now["place"], runs=2 ** now["runs"]))
        found = advice.path[-1][0]
        return Try(question, start, act, f"{found} So: {advice.strategy}. {after}")

    return explore(
        show,
        tries=[
            ask(
                "64 devices are free: for which model do you take just one?",
                {"parameters": 8},
                "Sixty-three devices stay free, and nobody has to wait for them.",
            ),
            ask(
                "The machines come and go, and you get 8: parameter servers or not?",
                {"place": SPARE, "devices": 3},
                "Look to the right of it: with more workers a server's links fill up, and "
                "synchronous steps win again.",
            ),
            ask(
                "128 runs instead of one: which color grows on the map?",
                {"runs": 7},
                "Run them apart, unless the devices outnumber the runs.",
            ),
        ],
        parameters=Slider("Parameters", 6, 12, 9, 0.5, grid=(8, 9, 10, 11), base=10),
        devices=Slider("Devices", 0, 12, 6, grid=(0, 1, 3, 6, 9, 12), base=2),
        place=Choice("Where they are", list(PLACES), STEADY),
        runs=Slider("Independent runs", 0, 7, 0, grid=(0, 3, 7), base=2),
        examples=Slider("Examples", 4, 10, 7, 0.5, grid=(7, 9), base=10),
    )
