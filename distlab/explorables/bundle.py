"""Joins an explorable's files into one text: no build step, no module to fetch, one palette.

The files in `browser/` are ordinary JavaScript modules that import one another by name
(`import { slider } from "./core.js";`). A notebook takes a module as one text, and a page
opened from a folder loads no modules, so they are joined: each file once, in the order of
their imports, inside one function that returns what the last one exports.
"""

import re
from functools import cache
from pathlib import Path

from distlab.errors import CourseError
from distlab.figures.palette import BLACK, IDEAS, REPLICAS
from utils.checks import check_choice

BROWSER = Path(__file__).parent / "browser"
_IMPORT = re.compile(r'^import (?:\{[^}]*\}|\w+) from "\./([\w.]+)";\n', re.M)
_EXPORT = re.compile(r"^export (?:async )?(?:function\*?|const|let|class) (\w+)", re.M)
_PAGE = {  # of JupyterLab where there is one; light, dark
    "ink": ("var(--jp-content-font-color1, #1d1f22)", "var(--jp-content-font-color1, #eceef1)"),
    "paper": ("var(--jp-layout-color0, #ffffff)", "var(--jp-layout-color0, #111418)"),
    "panel": ("#f5f7fa", "#191d23"),
    "line": ("#d9dee6", "#343b46"),
    "edge": ("#6f7884", "#8a94a3"),
    "track": ("#c3cad4", "#48515e"),
    "accent": ("#1d2a3a", "#dfe6f0"),
    "on-accent": ("#ffffff", "#111418"),
    "focus": ("#d55e00", "#ffc145"),
}
_DARK = (
    '[data-jp-theme-light="false"] .ex, [data-theme="dark"] .ex',
    "html:not([data-theme]) body:not([data-jp-theme-light]) .ex",
)


@cache
def join_script(name: str, on_page: bool = False) -> str:
    """Return one JavaScript expression: an object with what `browser/NAME.js` exports.

    A piece's object has the core's `mount` as well. With `on_page` it takes the core, and
    `mountOnPage`, from the page, which must have `join_base` as `distlabPieces.base`.

    Raises CourseError for a file that isn't there, and for files that import each other.
    """
    base = _find_files("page.js", ()) if on_page else []
    files = _read([path for path in _find_files(f"{name}.js", ()) if path not in base])
    exported = _EXPORT.findall(files[-1])
    if "export default" in files[-1]:
        exported += ["mount", "default: piece"] + ["mountOnPage"] * on_page
    taken = f"const {{ {', '.join(_list_base())} }} = distlabPieces.base;\n" if on_page else ""
    return _write_scope(taken, files, exported)


@cache
def join_base() -> str:
    """Return, as one JavaScript expression, what all pieces of a page share: core and page."""
    return _write_scope("", _read(_find_files("page.js", ())), _list_base())


def _list_base() -> list[str]:
    """Return the names that the core and the page export."""
    return _EXPORT.findall("\n".join(_read(_find_files("page.js", ()))))


def _read(paths: list[Path]) -> list[str]:
    return [path.read_text(encoding="utf-8") for path in paths]


def _write_scope(taken: str, files: list[str], exported: list[str]) -> str:
    head = f'"use strict";\nconst REPLICA_COUNT = {len(REPLICAS)};\n{taken}'
    body = "".join(map(_strip, files))
    return f"(() => {{\n{head}{body}return {{ {', '.join(exported)} }};\n}})()"


def _find_files(name: str, above: tuple[str, ...]) -> list[Path]:
    """Return the file and its imports, each once, imports first."""
    path = BROWSER / name
    if not path.is_file():
        here = sorted(each.name for each in BROWSER.glob("*.js"))
        check_choice("An explorable's file", name, here)
    if name in above:
        raise CourseError(f"{name} must not import itself: it does through {', '.join(above)}.")
    found: list[Path] = []
    for other in _IMPORT.findall(path.read_text(encoding="utf-8")):
        found += [each for each in _find_files(other, (*above, name)) if each not in found]
    return [*found, path]


def _strip(text: str) -> str:
    text = _IMPORT.sub("", text)
    text = re.sub(r"^export default function \w*", "function piece", text, flags=re.M)
    return re.sub(r"^export ", "", text, flags=re.M)


@cache
def join_style(*names: str) -> str:
    """Return a style sheet: with "core" the palette for both themes, then each NAME.css."""
    paths = (BROWSER / f"{name}.css" for name in names)
    own = "\n".join(path.read_text(encoding="utf-8") for path in paths if path.exists())
    return _write_palette() + own if "core" in names else own


def _write_palette() -> str:
    light = _declare({**_list_ideas(0), **{name: pair[0] for name, pair in _PAGE.items()}})
    dark = _declare({**_list_ideas(1), **{name: pair[1] for name, pair in _PAGE.items()}})
    replicas = _declare({f"replica-{k}": each for k, each in enumerate(REPLICAS)})
    return (
        f".ex {{ color-scheme: light; {light} {replicas} --ex-on-replica: {BLACK}; }}\n"
        f"{_DARK[0]} {{ color-scheme: dark; {dark} }}\n"
        f"@media (prefers-color-scheme: dark) {{ {_DARK[1]} {{ color-scheme: dark; {dark} }} }}\n"
    )


def _list_ideas(theme: int) -> dict[str, str]:
    """Return each idea's color, and the ink on it, on a light page (0) or a dark one (1)."""
    fills = {name: shade[theme] for name, shade in IDEAS.items()}
    inks = {f"on-{name}": (shade.ink, BLACK)[theme] for name, shade in IDEAS.items()}
    return fills | inks


def _declare(values: dict[str, str]) -> str:
    return " ".join(f"--ex-{name}: {value};" for name, value in values.items())
