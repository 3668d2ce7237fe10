"""Write and read the reports of a running task, as JSON lines. NumPy at most.

Each line is one object with at least `event` (its kind) and `time` (seconds
since the epoch). `training` writes these kinds:

| event | fields |
|---|---|
| restore | step, path, devices, skipped_checkpoints: damaged checkpoints that are newer, and why |
| start | strategy, replicas (of each worker), workers, global_batch_size, steps_per_epoch, \
epochs, devices, device_kinds, all_reduce, unused_gpus, device_note (as in `training.report`) |
| patched | what: a part of Keras that was patched for several workers |
| step | step, epoch, loss, images_per_second |
| epoch | step, epoch, loss, accuracy (of a classification), other metrics by their names, \
images_per_second |
| checkpoint | step, epoch, path |
| end | step, test_loss, test_accuracy and other metrics (where there is test data) |

A worker that reports `batch` (its batch has arrived) and `ready` (its own gradients are there,
the others' aren't yet) before each `step` shows how long it computed and how long it waited:
`goodput` adds that up. A step that another task reports for it has `of`, the worker's name, and
`began`, in seconds since the epoch.

A loss that isn't finite (the run diverged) is null, in a file and from a task.
"""

import json
import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

EVENTS_VARIABLE = "DISTLAB_EVENTS_DESCRIPTOR"  # set in a cluster's tasks: an open descriptor

Event = dict[str, Any]
Listener = Callable[[Event], None]


def make_event(event: str, **fields: Any) -> Event:
    """Return one event of kind `event`, stamped with the time of now."""
    return {"event": event, "time": time.time(), **fields}


def to_json_line(record: Any) -> str:
    """Return `record` as JSON on one line, which any parser takes.

    JSON has no word for a number that isn't finite: the loss of a run that
    diverged (NaN, infinity) becomes null.
    """
    return json.dumps(_replace_not_finite(record), allow_nan=False)


def _replace_not_finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _replace_not_finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_not_finite(inner) for inner in value]
    return value


def report(event: str, **fields: Any) -> None:
    """Report `event` with its `fields` from a task of a cluster; elsewhere do nothing.

    The reader of `job.events()`, in the process that started the cluster, gets it.

        >>> report("step", step=3, loss=0.25)
    """
    descriptor = os.environ.get(EVENTS_VARIABLE)
    if descriptor is not None:
        os.write(int(descriptor), to_json_line(make_event(event, **fields)).encode() + b"\n")


class EventWriter:
    """Append events to a file, one JSON object a line; call it with an event.

    Each event is one `write` in append mode, so that several processes on one
    machine may share the file. Use it in a `with` block or call `close`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(self.path, "ab", buffering=0)

    def __call__(self, event: Event) -> None:
        self._file.write(to_json_line(event).encode() + b"\n")

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> "EventWriter":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def read_events(path: str | os.PathLike[str]) -> Iterator[Event]:
    """Yield the events in `path`, in the order they were written.

    A last line that is still being written (no newline yet) is left out. Raises
    ValueError that names the line if a whole line isn't JSON.
    """
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                yield json.loads(line)
            except ValueError as error:
                raise ValueError(
                    f"{path}, line {number}: must be a JSON object ({error})."
                ) from None
