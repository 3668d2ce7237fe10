"""Try TensorFlow in a child process, and put what came of it into plain words."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distlab.doctor.commands import Outcome, describe_signal, run_command
from distlab.doctor.findings import Finding
from utils.devices import choose_devices
from utils.errors import InputError
from utils.gpus import VISIBLE, explain_complaint, read_driver, select_gpus, share_gpus
from utils.measure import count
from utils.strategies import STRATEGIES, StrategyRecord

CHILD = Path(__file__).with_name("tensorflow_child.py")
LIMIT_SECONDS = 60.0
DOING = {  # the child's work while this stage wasn't reported
    "import": "importing TensorFlow",
    "keras": "importing Keras",
    "gpus": "looking for GPUs",
    "split": "splitting the CPU into logical devices",
    "compute": "computing",
}
LEARNERS_NOTE = "everything runs on logical CPU devices, which share the cores"
Stages = dict[str, dict[str, Any]]


def try_tensorflow(
    limit_seconds: float = LIMIT_SECONDS, command: Sequence[str] | None = None
) -> list[Finding]:
    """Run the child and return its findings: start, logical devices, GPUs, computation.

    `command` stands in for the child's command line. A child that hangs is killed; a crash shows by
    its signal.
    """
    command = command or [sys.executable, "-P", str(CHILD), f"{limit_seconds:g}"]
    environment = {"TF_CPP_MIN_LOG_LEVEL": "1", **os.environ}
    outcome = run_command(command, limit_seconds, environment=environment)
    stages = _read_stages(outcome.output)
    undone = next((stage for stage in DOING if stage not in stages), None)
    found = [_judge_start(stages)] if {"import", "keras"} <= stages.keys() else []
    if undone is not None:
        found.append(_explain_failure(undone, outcome, limit_seconds))
    if "split" in stages:
        value = f"the CPU splits into {stages['split']['devices']}"
        found.append(Finding("logical devices", "ok", value))
    found += examine_gpus(stages.get("gpus"), outcome.errors)
    if "compute" in stages:
        value = f"a matrix product and a convolution are right on {stages['compute']['device']}"
        found.append(Finding("computation", "ok", value))
    return found


def _read_stages(output: str) -> Stages:
    stages: Stages = {}
    for line in output.splitlines():
        try:
            told = json.loads(line)
            stages[told["stage"]] = told
        except (ValueError, KeyError, TypeError):
            continue  # something else that an import printed
    return stages


def _judge_start(stages: Stages) -> Finding:
    value = f"imported in {stages['import']['seconds']:.1f} s"
    backend = stages["keras"]["backend"]
    if backend != "tensorflow":
        advice = "tf.distribute needs TensorFlow: set KERAS_BACKEND=tensorflow, or the backend "
        advice += "in ~/.keras/keras.json"
        return Finding("TensorFlow start", "problem", f"Keras runs on {backend}", advice)
    return Finding("TensorFlow start", "ok", value)


def _explain_failure(stage: str, outcome: Outcome, limit_seconds: float) -> Finding:
    """Return the problem that the first stage without a report stands for."""
    name = "logical devices" if stage == "split" else "TensorFlow start"
    name = "computation" if stage == "compute" else name
    doing, status = DOING[stage], outcome.status
    if status is None:
        advice = "try again when the machine is less busy; if it stays, `make clean`, `make lab`"
        return Finding(name, "problem", f"no answer within {limit_seconds:g} s, {doing}", advice)
    if status < 0:
        value = f"ended while {doing} by {describe_signal(-status)}"
        return Finding(name, "problem", value, _advise_signal(-status))
    error = outcome.last_error_line or f"exit status {status}"
    advice = "`make clean`, then `make lab`, builds the environment again"
    return Finding(name, "problem", f"failed while {doing}: {error}", advice)


def _advise_signal(number: int) -> str:
    if number == 4:
        return "use a machine whose processor has AVX, or let the virtual machine have the host's"
    if number == 9:
        return "shut down other kernels and programs, or give the container more memory"
    return "`make clean`, then `make lab`, builds the environment again"


def examine_gpus(seen: dict[str, Any] | None, errors: str = "") -> list[Finding]:
    """Return what GPUs are here, and on what each strategy would train.

    `seen` is the child's report {"names": […], "built_with": whether this TensorFlow has CUDA in
    it}, None without a report (`--quick`, or a crash). `errors` is its output.
    """
    driver = read_driver()
    try:
        named = select_gpus(os.environ.get(VISIBLE), driver)
    except InputError as error:
        return [Finding("GPU", "warning", "none that TensorFlow sees", str(error))]
    kinds = [gpu.kind for gpu in driver]
    visible = [str(number) for number in range(len(seen["names"]))] if seen else named
    uses = describe_uses(visible)
    return [judge_gpus(kinds, seen, errors), Finding("training devices", "ok", uses)]


def judge_gpus(driver: list[str], seen: dict[str, Any] | None, errors: str = "") -> Finding:
    """Return the finding on GPUs: those that the driver names, those that TensorFlow sees."""
    names = driver if seen is None else seen["names"]
    if names:
        kinds = [f"{names.count(kind)} x {kind}" for kind in dict.fromkeys(names)]
        untried = ", TensorFlow not asked" if seen is None else ""
        return Finding("GPU", "ok", ", ".join(kinds) + untried)
    if not driver:
        return Finding("GPU", "missing", "none", LEARNERS_NOTE)
    if os.environ.get(VISIBLE) is not None:
        advice = f"{VISIBLE} hides them; {LEARNERS_NOTE}"
    elif seen["built_with"]:
        advice = f"{explain_complaint(errors)}; without them {LEARNERS_NOTE}"
    else:
        advice = f"this TensorFlow was built without CUDA; {LEARNERS_NOTE}"
    value = f"{len(driver)} x {driver[0]}, which TensorFlow doesn't see"
    return Finding("GPU", "warning", value, advice)


def describe_uses(gpus: Sequence[str]) -> str:
    """Return on what each strategy trains here when no option names devices, in a sentence."""
    uses: dict[str, list[str]] = {}
    for record in STRATEGIES.values():
        if record.place != "TPU":
            find = describe_workers if record.place == "cluster" else describe_replicas
            uses.setdefault(find(record, gpus), []).append(record.name)
    return "; ".join(f"{', '.join(names)}: {use}" for use, names in uses.items())


def describe_replicas(record: StrategyRecord, gpus: Sequence[str]) -> str:
    usual, most = record.usual_replicas, record.max_replicas
    kind, number = choose_devices("auto", None, len(gpus), usual, most)
    return f"{kind}:0" if number == 1 else f"{kind}:0 to {kind}:{number - 1}"


def describe_workers(record: StrategyRecord, gpus: Sequence[str], workers: int = 2) -> str:
    try:
        shares = share_gpus(gpus, workers, int(record.is_coordinated))
    except InputError:
        return f"--workers {len(gpus)}, or {workers} workers with --device cpu"
    parts = (
        [shares[f"worker {index}"][VISIBLE].split(",") for index in range(workers)]
        if shares
        else []
    )
    return f"{count(len(parts[0]), 'GPU')} for each of {workers} workers" if parts else "CPU:0"
