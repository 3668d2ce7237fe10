"""The teacher's settings of a class, as text on their way to the laptops."""

import json
import time
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from distlab.errors import CourseError
from utils.checks import check_choice, check_count, check_number
from utils.errors import InputError

if TYPE_CHECKING:
    from utils.training.recovery import RecoverySettings

OPTIMIZERS = ("sgd", "momentum", "adam")
MAX_TEXT, MAX_EPOCHS, MAX_EXAMPLES, MAX_BATCH, MAX_UNITS = 2000, 1000, 10_000, 4096, 512
MAX_CHECKPOINT_EVERY, MAX_PAUSE_SECONDS = 100_000, 5.0


@dataclass(frozen=True)
class ClassSettings:
    """One training run of a class: a small float64 MLP on Fashion-MNIST, over all laptops.

    A checkpoint is saved every `checkpoint_every` steps. Everyone sleeps `pause_seconds` before
    each step, so that a room can follow. Raises InputError, which names the value and the allowed
    ones.
    """

    epochs: int = 20
    examples: int = 2560
    global_batch_size: int = 128
    hidden_units: int = 32
    optimizer: str = "momentum"
    learning_rate: float = 0.05
    checkpoint_every: int = 20
    pause_seconds: float = 0.25
    seed: int = 0

    def __post_init__(self) -> None:
        for name, most in (
            ("epochs", MAX_EPOCHS),
            ("examples", MAX_EXAMPLES),
            ("global_batch_size", MAX_BATCH),
            ("hidden_units", MAX_UNITS),
            ("checkpoint_every", MAX_CHECKPOINT_EVERY),
        ):
            check_count(name.replace("_", " "), getattr(self, name), 1, most)
        check_count("seed", self.seed, 0, 2**31 - 1)
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        check_number("learning rate", self.learning_rate, above=0.0)
        check_number("pause seconds", self.pause_seconds, least=0.0)
        if self.pause_seconds > MAX_PAUSE_SECONDS:
            raise InputError(
                f"pause seconds must be at most {MAX_PAUSE_SECONDS:g}, got {self.pause_seconds}."
            )

    @property
    def total_steps(self) -> int:
        return self.epochs * -(-self.examples // self.global_batch_size)

    def to_text(self) -> str:
        """Return the settings as the teacher's machine hands them out."""
        return json.dumps(asdict(self))

    def to_recovery(self, folder: str) -> "RecoverySettings":
        """Return them as `utils.training.recovery` takes them; checkpoints are in `folder`."""
        from utils.training.recovery import RecoverySettings

        return RecoverySettings(folder, watched=True, **asdict(self))


def read_settings(text: str) -> ClassSettings:
    """Return the settings that a teacher's machine has handed out: these, and nothing else.

    Raises CourseError for anything that isn't a class's settings.
    """
    told = _parse(text)
    kinds = {field.name: field.type for field in fields(ClassSettings)}
    if not isinstance(told, dict) or set(told) != set(kinds):
        raise CourseError(
            "The teacher's machine sent something that isn't a class's settings. Do both have "
            "the same version?"
        )
    for name, value in told.items():
        right = {int: int, float: (int, float), str: str}[kinds[name]]
        if isinstance(value, bool) or not isinstance(value, right):
            raise CourseError(
                f"The teacher's machine sent {name} {str(value)[:40]!r}, which this version "
                "can't use."
            )
    return ClassSettings(**told)


def _parse(text: str) -> Any:
    try:
        return json.loads(text) if len(text) <= MAX_TEXT else None
    except (ValueError, RecursionError):
        return None


def name_folder() -> str:
    """Return a name for what a run leaves, such as "class-20261122-101500"."""
    return time.strftime("class-%Y%m%d-%H%M%S")
