"""Watch a run's checkpoints from outside, by the names of their files."""

import os
import re
from pathlib import Path


class Saves:
    """The steps of the files written into a folder: the first number of each name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = dict(self._list())
        self._steps: set[int] = set()

    def look(self) -> tuple[int, ...]:
        """Return the steps of all files written since the start, in rising order."""
        for name, written in self._list():
            number = re.search(r"\d+", name)
            if number and self._seen.get(name) != written:
                self._steps.add(int(number[0]))
            self._seen[name] = written
        return tuple(sorted(self._steps))

    def _list(self) -> list[tuple[str, int]]:
        found = []
        for folder, _, names in os.walk(self._folder):
            for path in (os.path.join(folder, name) for name in names):
                name = os.path.relpath(path, self._folder)
                try:
                    written = os.stat(path).st_mtime_ns
                except OSError:  # gone since it was listed
                    continue
                if "tmp" not in name:  # a file on its way, whose name is a random one
                    found.append((name, written))
        return found
