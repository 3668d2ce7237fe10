"""Wraps an explorable's files for a notebook or a page: no build step, and nothing to fetch.

The files in `browser/` are CommonJS modules, which Node.js runs as they are. A notebook takes one
text, and a page opened from a folder loads no modules. So the text of each file becomes a function
as it stands, and a small `require` runs a file when it's first asked for. The piece NAME has
`NAME.js`, each `NAME_*.js`, and what all pieces share.
"""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from distlab.figures.palette import BLACK, IDEAS, REPLICAS
from utils.checks import check_choice

BROWSER = Path(__file__).parent / "browser"
SHARED = ("core.js", "page.js")
_BASE = """((shared) => (own) => {{
  const files = {{ ...shared, ...own }}, loaded = {{}};
  return function require(path) {{
    const name = path.replace("./", ""), names = Object.keys(files).join(", ");
    if (!files[name]) throw new Error(`${{path}} must be one of ${{names}}.`);
    if (!loaded[name]) files[name](require, (loaded[name] = {{}}));
    if (!loaded[name].exports)
      throw new Error(`${{path}} must set module.exports, and not require itself through others.`);
    return loaded[name].exports;
  }};
}})({shared})"""
_FILE = '"{name}": (require, module) => {{ "use strict";\n{text}}},\n'
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
def wrap_base() -> str:
    """Return a JavaScript expression: a function from `wrap_piece`'s object to a `require`."""
    return _BASE.format(shared=_wrap(BROWSER / name for name in SHARED))


@cache
def wrap_piece(name: str) -> str:
    """Return a JavaScript object with a function for each file of the piece.

    Raises InputError for a piece that isn't there.
    """
    files = [path for path in sorted(BROWSER.glob("*.js")) if path.name not in SHARED]
    check_choice("An explorable", name, [path.stem for path in files if "_" not in path.stem])
    return _wrap(path for path in files if path.stem.partition("_")[0] == name)


def _wrap(paths: Iterable[Path]) -> str:
    files = {path.name: path.read_text(encoding="utf-8") for path in paths}
    wrapped = [_FILE.format(name=name, text=text) for name, text in files.items()]
    return f"{{{''.join(wrapped)}}}"


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
