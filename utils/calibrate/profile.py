"""The profile of a model on one device: seconds, bytes, FLOPs, operations. NumPy at most."""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ..checks import check_count, check_number, list_few
from ..errors import InputError

MAX_SPREAD = 0.3


@dataclass(frozen=True)
class LocalCosts:
    """Measurements of two processes of one machine: seconds of the clock and of processors.

    A step while both compute (`step`), one while both train the same model (`pair`),
    and an all-reduce between them: of one number (`launch`), of 16 KiB (`short`), and of
    all gradients (`reduce`). The `_processor` seconds are for one process.
    """

    cores: int
    step_seconds: float
    step_processor_seconds: float
    pair_seconds: float
    pair_processor_seconds: float
    launch_seconds: float
    launch_processor_seconds: float
    short_seconds: float
    short_processor_seconds: float
    reduce_seconds: float
    reduce_processor_seconds: float

    def __post_init__(self) -> None:
        check_count("cores", self.cores)
        for field in fields(self)[1:]:
            check_number(field.name.replace("_", " "), getattr(self, field.name), least=0)


@dataclass(frozen=True)
class Profile:
    """The cost of a model on one device. Unknown fields keep their defaults.

    One step has `batch` examples and takes `forward_seconds` and `backward_seconds`;
    `fixed_seconds` of them don't grow with the batch. `input_seconds` is the time of the input
    pipeline for a batch, which overlaps with the step. `gradient_bytes` and `activation_bytes` are
    for one step, `flops_per_example` for forward and backward, `parameters` a count.
    `checkpoint_seconds` and `restart_seconds` are for one save and one restart. `operations` is the
    number of ops of the traced step, `compiled_operations` the number that XLA can't fuse into
    others, and `call_seconds` the time to call a compiled function from Python.
    `straggler_sigma` is the spread of step times (of their logarithm), `spread` the relative range
    of predictions. `latency_seconds` and `bandwidth_bytes_per_second` are between two processes
    here, `local` what this machine costs besides. `model` and `measured` are labels. Raises
    InputError for a value out of range.

        >>> Profile(forward_seconds=0.01, backward_seconds=0.02, gradient_bytes=4e6).batch
        1
    """

    forward_seconds: float
    backward_seconds: float
    gradient_bytes: float
    model: str = "model"
    batch: int = 1
    parameters: float | None = None
    fixed_seconds: float = 0.0
    input_seconds: float = 0.0
    checkpoint_seconds: float = 0.0
    restart_seconds: float = 0.0
    flops_per_example: float = 0.0
    activation_bytes: float = 0.0
    operations: int = 0
    compiled_operations: int = 0
    call_seconds: float = 0.0
    straggler_sigma: float = 0.0
    spread: float = 0.2
    latency_seconds: float | None = None
    bandwidth_bytes_per_second: float | None = None
    local: LocalCosts | None = None
    measured: str = ""

    def __post_init__(self) -> None:
        check_count("batch", self.batch)
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("model", "batch", "local", "measured") or value is None:
                continue
            check_number(field.name.replace("_", " "), value, least=0)
        if self.compute_seconds <= 0:
            raise InputError("forward seconds and backward seconds must not both be 0.")
        if self.spread > MAX_SPREAD:
            raise InputError(f"spread must be at most {MAX_SPREAD:g}, got {self.spread:g}.")
        if self.fixed_seconds > self.compute_seconds:
            raise InputError(
                f"fixed seconds must be at most forward plus backward, {self.compute_seconds:g}, "
                f"got {self.fixed_seconds:g}: they are a part of both."
            )

    @property
    def compute_seconds(self) -> float:
        return self.forward_seconds + self.backward_seconds

    @property
    def parameter_count(self) -> float:
        """The number of parameters. If it isn't known, one for every four bytes of gradient."""
        known = self.gradient_bytes / 4 if self.parameters is None else self.parameters
        return max(1.0, known)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def read_profile(source: str | Path | dict[str, Any]) -> Profile:
    """Return the profile in a JSON file, or in what `distlab plan --json` prints.

    Raises InputError, in one line, for a file that can't be read, for names that a
    profile doesn't have, and for numbers that can't be.
    """
    record = source if isinstance(source, dict) else _read_json(Path(source))
    record = record.get("profile", record)
    if not isinstance(record, dict):
        raise InputError("The profile must be one JSON object.")
    known = {field.name for field in fields(Profile)}
    if unknown := sorted(set(record) - known):
        raise InputError(
            f"The profile's fields must be among {', '.join(sorted(known))}, got "
            f"{list_few(map(repr, unknown))}."
        )
    needed = ("forward_seconds", "backward_seconds", "gradient_bytes")
    if missing := [name for name in needed if name not in record]:
        raise InputError(f"The profile must have {', '.join(missing)}. Measure it again.")
    try:
        local = record.get("local")
        return Profile(**{**record, "local": LocalCosts(**local) if local else None})
    except TypeError as error:
        raise InputError(f"The profile can't be used: {error}") from None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"The profile {path} can't be read ({error.strerror}).") from None
    except ValueError as error:
        raise InputError(f"The profile {path} isn't JSON ({error}).") from None
    if not isinstance(record, dict):
        raise InputError(f"{path} must hold one JSON object.")
    return record
