"""Try TensorFlow in a child process, and put what came of it into plain words."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distlab.doctor.commands import Outcome, describe_signal, run_command
from distlab.doctor.findings import Finding
from distlab.doctor.tools import list_nvidia_gpus

CHILD = Path(__file__).with_name("tensorflow_child.py")
LIMIT_SECONDS = 60.0
DOING = {  # what was going on when this stage had not been reported
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

    `command` stands in for the child's command line. A child that hangs is
    killed; one that crashes is told apart by its signal.
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
    found.append(judge_gpus(list_nvidia_gpus(), stages.get("gpus")))
    if "compute" in stages:
        found.append(_describe_computation(stages["compute"]))
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


def judge_gpus(driver: list[str], seen: dict[str, Any] | None) -> Finding:
    """Return the finding on GPUs: those that the driver names, those that TensorFlow sees.

    `seen` is the child's report {"names": […], "built_with": whether this
    TensorFlow has CUDA in it}, None where there is no report (`--quick`, or a crash).
    """
    names = driver if seen is None else seen["names"]
    if names:
        kinds = [f"{names.count(kind)} x {kind}" for kind in dict.fromkeys(names)]
        untried = ", TensorFlow not asked" if seen is None else ""
        return Finding("GPU", "ok", ", ".join(kinds) + untried)
    if not driver:
        return Finding("GPU", "missing", "none", LEARNERS_NOTE)
    if os.environ.get("CUDA_VISIBLE_DEVICES") is not None:
        advice = f"CUDA_VISIBLE_DEVICES hides them; {LEARNERS_NOTE}"
    elif seen["built_with"]:
        advice = "CUDA's libraries are missing: `pip install 'tensorflow[and-cuda]'` in the pinned "
        advice += f"version; without it {LEARNERS_NOTE}"
    else:
        advice = f"this TensorFlow was built without CUDA; {LEARNERS_NOTE}"
    value = f"{len(driver)} x {driver[0]}, which TensorFlow does not see"
    return Finding("GPU", "warning", value, advice)


def _describe_computation(told: dict[str, Any]) -> Finding:
    value = f"right on {told['device']}: matmul {told['gigaflops']:,.0f} GFLOP/s, "
    value += f"3x3 convolution {told['images_per_second']:,.0f} images/s"
    return Finding("computation", "ok", value)
