"""A folder that an answer reads: its files travel to the answer's process when it is graded."""

import base64
import os
import tempfile
from pathlib import Path
from typing import Any


class Folder(str):
    """The path of a folder of files, which an answer gets as a str."""


def pack_folder(folder: Folder) -> list[list[Any]]:
    """Return the name, time (ns) and bytes (base64) of each file in and below `folder`."""
    return [
        [
            str(path.relative_to(folder)),
            path.stat().st_mtime_ns,
            base64.b64encode(path.read_bytes()).decode("ascii"),
        ]
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file()
    ]


def unpack_folder(files: list[list[Any]]) -> str:
    """Write what `pack_folder` gave into a new temporary folder; return its path."""
    folder = tempfile.mkdtemp()
    for name, time_ns, body in files:
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(body))
        os.utime(path, ns=(time_ns, time_ns))
    return folder
