"""Committed notebooks where people find them: on a code host, which keeps images and drops HTML.

What a host removes is what nbconvert's `clean_html` removes: drawings, images, scripts and styles.
"""

import base64
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import nbformat.v4
import pytest
from nbconvert import HTMLExporter

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted([*ROOT.glob("notebooks/*.ipynb"), *ROOT.glob("solutions/*.ipynb")])
MAX_BYTES = 15_000_000  # of all notebooks together
SHOWN = re.compile(r'<img[^>]*src="data:image/svg\+xml;base64,([^"]+)"')
SVG = "image/svg+xml"


def list_drawn(notebook: Any) -> list[Any]:
    """Return the outputs that hold a drawing of any form."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return [output for output in outputs if _is_drawn(output.get("data", {}))]


def _is_drawn(data: Any) -> bool:
    return any(kind.startswith("image/") for kind in data) or bool(
        re.search(r"<(?:svg|img|canvas)\b", data.get("text/html", ""))
    )


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_drawing_is_lost_on_a_code_host(path: Path) -> None:
    drawn = list_drawn(nbformat.v4.reads(path.read_text(encoding="utf-8")))
    page = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(outputs=drawn)])
    exporter = HTMLExporter(sanitize_html=True, template_name="basic")
    shown = SHOWN.findall(exporter.from_notebook_node(page)[0])
    assert [base64.b64decode(image).decode() for image in shown] == [
        output.data.get(SVG) for output in drawn
    ]
    for image in map(ElementTree.fromstring, (output.data[SVG] for output in drawn)):
        assert len(image.get("aria-label")) > 20 and image.get("viewBox")


def test_a_drawing_inside_html_would_be_missed() -> None:
    lost = nbformat.v4.new_output("display_data", {"text/html": "<figure><svg></svg></figure>"})
    page = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(outputs=[lost])])
    assert list_drawn(page) == [lost]
    html = HTMLExporter(sanitize_html=True, template_name="basic").from_notebook_node(page)[0]
    assert not SHOWN.findall(html) and "<svg" not in html


def test_all_notebooks_together_are_small() -> None:
    paths = [*NOTEBOOKS, *ROOT.glob("labs/*.ipynb")]
    assert sum(path.stat().st_size for path in paths) < MAX_BYTES
