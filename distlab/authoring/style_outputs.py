"""The style lint's rules for committed outputs.

- Every code cell has run, in order, from 1.
- No absolute path of a machine, no object address, no standard error, no
  progress bar, no log line of TensorFlow; an error only under the tag
  `raises-exception`.
- A cell tagged `nbval-ignore-output` asserts something itself, or the next code
  cell does; a cell that shows nothing but a picture need not.
- A picture is `<img alt=…>` or `<svg role="img" aria-label=…>`; `image/png`
  stands only beside such HTML. A widget's view is not stored: without its
  kernel JupyterLab shows an error in its place.
"""

import re
from typing import Any

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
FORBIDDEN = (
    ("an absolute path", re.compile(r"(?<![\w.:/<-])/(?:root|home|work|tmp|Users)(?=/|\b)[^\s<]*")),
    ("an object's address", re.compile(r"\bat 0x[0-9a-fA-F]{6,}")),
    ("a progress bar", re.compile(r"\r|\x08|━{3}|\d%\|| \d+/\d+ \[=|\d+(?:it|s)/(?:it|s)\b")),
    (
        "a log line",
        re.compile(
            r"^[WEIF]\d{4} [\d:.]+|: [WEIF] \S*tensorflow|^(?:WARNING|ERROR):\w+:", re.MULTILINE
        ),
    ),
    ("a colour code", re.compile(r"\x1b\[")),
)
_IMG = re.compile(r"<img\b[^>]*>", re.IGNORECASE)
_SVG = re.compile(r"<svg\b[^>]*>", re.IGNORECASE)
_ALT = re.compile(r"""\balt=(?:"[^"]*\w[^"]*"|'[^']*\w[^']*')""")
_LABEL = re.compile(r"""\baria-label=(?:"[^"]*\w[^"]*"|'[^']*\w[^']*')""")


def check_outputs(notebook: dict[str, Any], name: str) -> list[str]:
    """Return every complaint about what an executed notebook shows."""
    found = []
    code = [(k, c) for k, c in enumerate(notebook["cells"]) if c["cell_type"] == "code"]
    for count, (k, cell) in enumerate(code, start=1):
        if cell["source"] and cell["execution_count"] != count:
            found.append(f"{name}: cell {k}: execution count is not {count}: run distlab build")
        found += [f"{name}: cell {k}: {what}" for what in _check_cell(cell)]
        following = code[count][1]["source"] if count < len(code) else ""
        asserted = _asserts(cell["source"]) or _asserts(following)
        if _ignores_output(cell) and not _only_pictures(cell) and not asserted:
            found.append(f"{name}: cell {k}: nbval-ignore-output without an assertion")
    for k, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "markdown":
            html = re.sub(
                r"^```.*?^```|`[^`\n]*`", "", cell["source"], flags=re.MULTILINE | re.DOTALL
            )
            found += [f"{name}: cell {k}: {what}" for what in check_pictures(html)]
            if re.search(r"!\[\s*\]\(", html):
                found.append(f"{name}: cell {k}: a picture without alt text")
    return found


def _ignores_output(cell: dict[str, Any]) -> bool:
    return "nbval-ignore-output" in cell["metadata"].get("tags", [])


def _asserts(source: str) -> bool:
    return bool(re.search(r"^\s*assert\b|\bassert_\w+\(", source, re.MULTILINE))


def _only_pictures(cell: dict[str, Any]) -> bool:
    return bool(cell["outputs"]) and all(
        re.search(r"<img\b|<svg\b", output.get("data", {}).get("text/html", ""), re.IGNORECASE)
        or "image/png" in output.get("data", {})
        or "image/svg+xml" in output.get("data", {})
        for output in cell["outputs"]
    )


def _check_cell(cell: dict[str, Any]) -> list[str]:
    found = []
    for output in cell["outputs"]:
        if output["output_type"] == "stream" and output["name"] == "stderr":
            found.append("standard error: quieten it, or catch it and print it")
        allowed = "raises-exception" in cell["metadata"].get("tags", [])
        if output["output_type"] == "error" and not allowed:
            found.append(f"an error, {output['ename']}, without the tag raises-exception")
        found += _check_text(_texts(output))
        found += _check_bundle(output.get("data", {}))
    return found


def _texts(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    parts = [output.get("text", ""), output.get("evalue", ""), *output.get("traceback", [])]
    parts += [data.get(mime, "") for mime in ("text/plain", "text/html", "text/markdown")]
    return re.sub(r"data:[\w/+;=-]+,[A-Za-z0-9+/=]+", "", "\n".join(parts))


def _check_text(text: str) -> list[str]:
    hits = ((what, pattern.search(text)) for what, pattern in FORBIDDEN)
    return [f"output holds {what}: {hit[0].strip()[:60]!r}" for what, hit in hits if hit]


def _check_bundle(data: dict[str, Any]) -> list[str]:
    html = data.get("text/html", "")
    found = check_pictures(html)
    pictured = bool(_IMG.search(html) or _SVG.search(html))
    if "image/png" in data and not pictured:
        found.append("image/png alone has no alt text: show it with figures.show(…)")
    if WIDGET_VIEW in data:
        found.append("a widget's view is stored: rebuild with `distlab build --force`")
    return found


def check_pictures(html: str) -> list[str]:
    """Return a complaint for each `<img>` without alt and each `<svg>` without a name."""
    found = [f"{tag[:40]!r} has no alt text" for tag in _IMG.findall(html) if not _ALT.search(tag)]
    for tag in _SVG.findall(html):
        named = 'role="img"' in tag and _LABEL.search(tag)
        if not named and 'aria-hidden="true"' not in tag:
            found.append(f'{tag[:40]!r} has no role="img" with aria-label')
    return found
