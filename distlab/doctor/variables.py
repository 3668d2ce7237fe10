"""Probe of the environment variables that change what the course's code does."""

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from distlab.doctor.findings import Finding
from utils.errors import shorten


@dataclass(frozen=True)
class Rule:
    """A variable, when its value matters, how much, and what it does."""

    name: str
    matters: Callable[[str], bool]
    status: str
    advice: str


def _is_set(value: str) -> bool:
    return bool(value.strip())


def _is_on(value: str) -> bool:
    return value.strip().lower() in ("1", "true", "yes", "on")


def _is_off(value: str) -> bool:
    return value.strip().lower() in ("0", "false", "no", "off")


RULES = (
    Rule(
        "TF_CONFIG",
        _is_set,
        "warning",
        "every program started here believes it is a task of that cluster, and a multi-worker one "
        "waits for the others: `unset TF_CONFIG`",
    ),
    Rule(
        "TF_ENABLE_ONEDNN_OPTS",
        _is_off,
        "warning",
        "turns off the fast CPU kernels: a small CNN trained four times slower. "
        "`unset TF_ENABLE_ONEDNN_OPTS`; the banner is caught without it",
    ),
    Rule(
        "KERAS_BACKEND",
        lambda value: _is_set(value) and value != "tensorflow",
        "problem",
        "tf.distribute needs Keras on TensorFlow: `unset KERAS_BACKEND`",
    ),
    Rule(
        "TF_USE_LEGACY_KERAS",
        _is_on,
        "warning",
        "makes tf.keras the old tf_keras, while the course is about Keras 3: "
        "`unset TF_USE_LEGACY_KERAS`",
    ),
    Rule(
        "TF_XLA_FLAGS",
        lambda value: "auto_jit" in value,
        "warning",
        "compiles everything with XLA, which makes small CPU training slower: `unset TF_XLA_FLAGS`",
    ),
    Rule(
        "PYTHONOPTIMIZE",
        _is_set,
        "warning",
        "Python leaves out `assert`: lessons and labs check nothing. `unset PYTHONOPTIMIZE`",
    ),
)


def examine_variables(environment: Mapping[str, str] = os.environ) -> list[Finding]:
    """Return a finding for each variable that is in the way, or one that says that none is."""
    found = []
    for rule in RULES:
        value = environment.get(rule.name, "")
        if rule.matters(value):
            found.append(Finding(rule.name, rule.status, shorten(value), rule.advice))
    found += _examine_visible_gpus(environment) + _examine_proxy(environment)
    return found or [Finding("variables", "ok", "none in the way")]


def _examine_visible_gpus(environment: Mapping[str, str]) -> list[Finding]:
    name = "CUDA_VISIBLE_DEVICES"
    if name not in environment or not shutil.which("nvidia-smi"):
        return []
    value = environment[name].strip()
    seen = "no GPU" if value in ("", "-1") else f"only GPU {value}"
    advice = f"TensorFlow sees {seen}: `unset {name}` to let it see all"
    return [Finding(name, "warning", value or "(empty)", advice)]


def _examine_proxy(environment: Mapping[str, str]) -> list[Finding]:
    """gRPC takes a proxy from grpc_proxy, https_proxy or http_proxy, even for this machine."""
    names = ("grpc_proxy", "https_proxy", "http_proxy")
    used = next((name for name in names if environment.get(name)), None)
    spared = environment.get("no_grpc_proxy") or environment.get("no_proxy") or ""
    listed = {host.strip() for host in spared.split(",")}
    if used is None or "*" in listed or {"localhost", "127.0.0.1"} <= listed:
        return []
    advice = "workers on this machine may look for each other through it: "
    advice += "`export no_proxy=localhost,127.0.0.1`"
    return [Finding(used, "warning", "set, without this machine in no_proxy", advice)]
