"""Make the outputs of a notebook the same on every machine."""

import os
import re
import sys
import sysconfig
from pathlib import Path
from typing import Any

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def normalize_outputs(notebook: Any, root: Path) -> None:
    """Rewrite the outputs of `notebook` in place.

    Neighboring streams of one name become one, widgets leave their still picture
    only (a saved view without its kernel shows an error), tracebacks lose colors,
    this machine's paths and the source of library frames, and no cell keeps
    metadata of the run.
    """
    names = path_names(root)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type != "code":
            continue
        cell.outputs = _merge_streams(cell.outputs)
        for output in cell.outputs:
            if output.output_type == "error":
                output.evalue = shorten_paths(output.evalue, names)
                frames = [shorten_paths(frame, names) for frame in output.traceback]
                output.traceback = [_shorten_frame(frame) for frame in frames]
            output.get("data", {}).pop(WIDGET_VIEW, None)


def _shorten_frame(frame: str) -> str:
    library = frame.startswith(("File site-packages/", "File python/", "File environment/"))
    return frame.split("\n")[0] if library else frame


def _merge_streams(outputs: list[Any]) -> list[Any]:
    merged: list[Any] = []
    for output in outputs:
        before = merged[-1] if merged else None
        kinds = {(o.output_type, o.get("name")) for o in (before, output) if o}
        if before and output.output_type == "stream" and len(kinds) == 1:
            before.text += output.text
            continue
        merged.append(output)
    return merged


def path_names(root: Path) -> list[tuple[str, str]]:
    """Return (folder of this machine, its short name), the longest folder first."""
    paths = sysconfig.get_paths()
    pairs = {
        paths["purelib"]: "site-packages",
        paths["platlib"]: "site-packages",
        paths["stdlib"]: "python",
        sys.prefix: "environment",
        str(root.resolve()): "course",
        os.path.expanduser("~"): "~",
    }
    for folder, name in list(pairs.items()):
        pairs.setdefault(os.path.realpath(folder), name)
    found = [(folder, name) for folder, name in pairs.items() if len(folder) > 1]
    return sorted(found, key=lambda pair: -len(pair[0]))


def shorten_paths(text: str, names: list[tuple[str, str]]) -> str:
    """Return `text` without ANSI codes, and with short names for the folders in `names`.

    IPython writes the home folder as `~`, so that form is shortened as well.
    """
    text = _ANSI.sub("", text)
    home = os.path.expanduser("~")
    for folder, name in names:
        text = re.sub(re.escape(folder) + r"(?=/|\b)", name, text)
        if folder.startswith(home + "/"):
            text = text.replace("~" + folder[len(home) :], name)
    return text
