"""Options of an engine besides tasks: accounts, time, memory, resources."""

import shlex
from collections.abc import Sequence

from ..errors import InputError

# distlab sets these itself: what it starts depends on them
OWN = {
    "slurm": (
        *("-n", "--ntasks", "-a", "--array", "-p", "--partition", "-o", "--output", "-W", "--wait"),
        *("--parsable", "--requeue", "--no-requeue", "--open-mode", "--spread-job", "--wrap"),
    ),
    "spark": ("spark.master", "spark.python.", "spark.stage.", "spark.task.maxFailures"),
    "ray": ("num_gpus",),
}
EXAMPLES = {
    "slurm": "--account=x --time=8:00:00 --cpus-per-task=16",
    "ray": "num_cpus=16 memory=64000000000 spot=1",
    "spark": "spark.executor.memory=8g spark.yarn.queue=x",
}
RAYS_OWN = ("num_cpus", "memory")  # the others are custom resources


def read_options(engine: str, text: str, is_local: bool) -> list[str]:
    """Return the words of --engine-options; raises InputError for what `engine` can't take."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InputError(
            f"engine-options must close every quote, got {text!r} ({error})."
        ) from None
    if is_local and engine != "slurm":
        raise InputError(
            f"engine-options must be left out for {engine}'s cluster on this machine, got {text!r}."
            " Leave them out, or name your cluster with --engine-address."
        )
    for word in words:
        _check_word(engine, word)
    return words


def _check_word(engine: str, word: str) -> None:
    name, _, value = word.partition("=")
    own = any(
        name == each or (each.endswith(".") and name.startswith(each)) for each in OWN[engine]
    )
    if own or (engine == "slurm" and word[:2] in OWN["slurm"]):
        raise InputError(f"engine-options must not set {name}, which is set for you. Leave it out.")
    fits = {
        "slurm": word.startswith("-"),
        "ray": name.isidentifier() and _is_number(value),
        "spark": name.startswith("spark.") and bool(value),
    }
    if not fits[engine]:
        raise InputError(
            f"engine-options for {engine} must be words such as {EXAMPLES[engine]}, got {word!r}."
        )


def _is_number(text: str) -> bool:
    try:
        return 0 <= float(text) < float("inf")
    except ValueError:
        return False


def to_ray_options(words: Sequence[str]) -> dict[str, object]:
    """Return what Ray's `actor.options` takes: processors, memory in bytes, custom resources."""
    asked = {name: float(value) for name, _, value in (word.partition("=") for word in words)}
    options: dict[str, object] = {name: asked.pop(name) for name in RAYS_OWN if name in asked}
    return options | ({"resources": asked} if asked else {})
