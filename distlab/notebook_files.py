"""The files that `distlab lab` serves: without the course's machinery, and notebooks unchanged.

JupyterLab requests a lesson or lab as `work/05-….ipynb`, and it's made there when first opened
(`distlab.copies`). Opening the original opens the copy too: the course's extension of
JupyterLab sees to that.

The file browser lists what a learner works with. `BEHIND_THE_SCENES` are in the course folder
and aren't listed. A link, or *File > Open from Path*, opens them all the same.

A notebook comes with this machine's version of Python. JupyterLab writes what a kernel says of its
language into the notebook. The version in it is the one key that the committed files can't know,
and because of it a notebook that you only looked at would ask to be saved. So it is added on the
way to the page, and taken out on the way back, which also keeps it out of submissions.

API: https://jupyter-server.readthedocs.io/en/latest/developers/contents.html
"""

import platform
from contextlib import suppress
from pathlib import Path
from typing import Any

from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager

from distlab import copies

BEHIND_THE_SCENES = frozenset(
    "benchmarks build constraints.txt CONTRIBUTING.md distlab environment.yml HOME.md LICENSE "
    "Makefile pyproject.toml tests wheels".split()
)


class NotebookFiles(AsyncLargeFileManager):
    """Jupyter's own manager of files, but for one key of a Python notebook's metadata."""

    async def file_exists(self, path: str = "") -> bool:
        self._make_copy(path)
        return await super().file_exists(path)

    def _make_copy(self, path: str) -> None:
        folder, _, name = path.strip("/").partition("/")
        if folder == copies.FOLDER and "/" not in name:
            with suppress(OSError):  # a folder that can't be written to
                copies.open_copy(Path(self.root_dir), name)

    async def get(self, path: str = "", *args: Any, **options: Any) -> Any:
        self._make_copy(path)
        model = await super().get(path, *args, **options)
        if not path.strip("/") and isinstance(model["content"], list):
            model["content"] = [one for one in model["content"] if not _is_hidden(one["name"])]
        language = _find_language(model)
        if language is not None:
            language["version"] = platform.python_version()
        return model

    async def save(self, model: Any, path: str = "") -> Any:
        language = _find_language(model)
        if language is not None:
            language.pop("version", None)
        return await super().save(model, path)


def _is_hidden(name: str) -> bool:
    return name in BEHIND_THE_SCENES or name.endswith(".egg-info")


def _find_language(model: Any) -> dict[str, Any] | None:
    """Return the part of a notebook's metadata that says it is Python, None for other files."""
    if model.get("type") != "notebook" or not isinstance(model.get("content"), dict):
        return None
    language = model["content"].get("metadata", {}).get("language_info")
    return language if language and language.get("name") == "python" else None
