"""What a running task reports, as JSON lines: a writer and a reader. NumPy at most.

Each line is one object with at least `event` (its kind) and `time` (seconds
since the epoch). `training` writes these kinds:

| event | fields |
|---|---|
| start | strategy, replicas, workers, global_batch_size, steps_per_epoch, epochs |
| step | step, epoch, loss, images_per_second |
| epoch | step, epoch, loss, accuracy, images_per_second |
| checkpoint | step, epoch, path |
| end | step, test_loss, test_accuracy |
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Event = dict[str, Any]
Listener = Callable[[Event], None]


def make_event(event: str, **fields: Any) -> Event:
    """Return one event of kind `event`, stamped with the time of now."""
    return {"event": event, "time": time.time(), **fields}


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
        self._file.write(json.dumps(event).encode() + b"\n")

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> "EventWriter":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def read_events(path: str | os.PathLike[str], kind: str | None = None) -> Iterator[Event]:
    """Yield the events in `path`, all or those of one `kind`, in the order they were written.

    A last line that is still being written (no newline yet) is left out. Raises
    ValueError that names the line if a whole line is not JSON.
    """
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                event = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: not a JSON object ({error})") from None
            if kind is None or event.get("event") == kind:
                yield event
