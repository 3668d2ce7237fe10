"""The course's part of Jupyter's server: under `distlab lab`, on a hub, under any prefix.

It shows the home page and signs the lessons, so that their pictures are shown, makes kernels
ready, and answers:

    GET  /distlab/home   the home page; 204 where it is still what `?seen=` names
    POST /distlab/ran    {"path": "work/05-….ipynb", "cells": [ids]}: these cells have run
    GET  /distlab/copy   {"newer": whether the original of `?path=work/05-….ipynb` is newer}
    POST /distlab/copy   {"path": "work/05-….ipynb"}: start over; {"kept": where the old one is}

An extension of Jupyter's server, named in `distlab/lab_config`:
https://jupyter-server.readthedocs.io/en/latest/developers/extensions.html
"""

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import nbformat
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.utils import url_path_join
from nbformat.sign import NotebookNotary
from tornado import web

from distlab import copies, progress
from distlab.home.page import make_page

MAX_CELLS, MAX_LETTERS = 500, 64
TRUSTED_FOLDERS = ("notebooks", "solutions")


class _Handler(JupyterHandler):
    _track_activity = False  # the open page asks often: that isn't activity

    @property
    def course(self) -> Path:
        return Path(self.settings["server_root_dir"]).expanduser()


class HomeHandler(_Handler):
    """Gives the home page."""

    @web.authenticated
    def get(self) -> None:
        page = make_page(self.course)
        mark = hashlib.sha256(page.encode()).hexdigest()[:16]
        if self.get_query_argument("seen", "") == mark:
            self.set_status(204)
            return self.finish()
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps({"mark": mark, "page": page}))


class RanHandler(_Handler):
    """Takes down which cells of a lesson have run."""

    @web.authenticated
    def post(self) -> None:
        try:
            asked = json.loads(self.request.body)
            lesson, cells = asked["path"], asked["cells"]
            right = all(isinstance(cell, str) and len(cell) <= MAX_LETTERS for cell in cells)
        except (ValueError, TypeError, KeyError):
            right = False
        if not right or len(cells) > MAX_CELLS:
            raise web.HTTPError(400, "give the path of a lesson and the ids of its cells")
        path = self.course / "notebooks" / Path(str(lesson)).name
        copy = str(lesson) == f"{copies.FOLDER}/{path.name}"
        if (copy or path == self.course / str(lesson)) and path.is_file():
            with suppress(OSError):  # a folder that can't be written to keeps nothing
                progress.record_cells(self.course, path.stem, cells)
        self.set_status(204)
        self.finish()


class CopyHandler(_Handler):
    """Says whether the original of a learner's copy is newer, and puts it in its place."""

    @web.authenticated
    def get(self) -> None:
        newer = copies.is_outdated(self.course, Path(self.get_query_argument("path")).name)
        self.finish({"newer": newer})

    @web.authenticated
    def post(self) -> None:
        try:
            kept = copies.start_over(self.course, Path(json.loads(self.request.body)["path"]).name)
        except (ValueError, TypeError, KeyError, OSError) as error:
            raise web.HTTPError(400, str(error)) from None
        self.finish({"kept": kept.relative_to(self.course).as_posix()})


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "distlab.home.server"}]


def _link_jupyter_server_extension(server: Any) -> None:
    """Name the page's part of the home, before JupyterLab is loaded."""
    folder = str(Path(__file__).parents[1] / "lab_config" / "labextensions")
    for app in server.extension_manager.extension_apps.get("jupyterlab", ()):
        app.extra_labextensions_path = [*app.extra_labextensions_path, folder]


def _load_jupyter_server_extension(server: Any) -> None:
    """Add the answers, sign the lessons, and start the process that kernels are forked from."""
    from distlab.kernel import provisioner

    base = server.web_app.settings["base_url"]
    server.web_app.add_handlers(
        ".*$",
        [
            (url_path_join(base, "distlab", "home"), HomeHandler),
            (url_path_join(base, "distlab", "ran"), RanHandler),
            (url_path_join(base, "distlab", "copy"), CopyHandler),
        ],
    )
    provisioner.install(server)
    trust_notebooks(Path(server.root_dir))


def trust_notebooks(folder: Path) -> None:
    """Sign the course's own executed notebooks, as `jupyter trust` does.

    JupyterLab strips pictures (SVG) from the saved outputs of a notebook that it
    has no signature for. Labs, which people hand round, aren't signed.
    """
    notary = NotebookNotary()
    for path in (p for part in TRUSTED_FOLDERS for p in sorted((folder / part).glob("*.ipynb"))):
        try:
            notebook = nbformat.read(path, as_version=4)
        except (OSError, ValueError, nbformat.ValidationError):
            continue  # JupyterLab will say what is wrong with it when it is opened
        if not notary.check_signature(notebook):
            notary.sign(notebook)
