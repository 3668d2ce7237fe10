"""An explorable: a living picture that the browser draws, in JupyterLab and on any web page.

    Explorable("schedule", data, options, still)      # the last expression of a cell
    Explorable(...).to_html()                         # a fragment for a page, scripts and all

The browser's side is the piece's files of `browser/`. It reacts to the user without the kernel,
which only hears which options were chosen.
"""

import base64
import hashlib
import html
import json
import zlib
from collections.abc import Mapping
from typing import Any

import anywidget
import traitlets

from distlab.explorables.bundle import join_style, wrap_base, wrap_piece
from distlab.figures.picture import Picture, add_still

MAX_PLAIN = 10_000  # characters of data; a page has more of them packed
MIME = "application/vnd.distlab.explorable+json"
_WIDGET = """const require = {base}({files});
const {{ mount }} = require("./core.js"), {{ piece }} = require("./{name}.js");
export default {{
  render({{ model, el }}) {{
    let waiting = 0;
    const heard = (options) => {{
      clearTimeout(waiting);  // a dragged slider tells the kernel where it stopped
      const tell = () => {{ model.set("options", {{ ...options }}); model.save_changes(); }};
      waiting = setTimeout(tell, 120);
    }};
    const read = () => ({{ ...model.get("fixed"), ...model.get("data") }});
    const shown = mount(piece, el, read(), model.get("options"), heard);
    const follow = () => shown.stage.change(model.get("options"));
    const renew = () => {{ shown.stage.data = read(); shown.stage.redraw(); }};
    model.on("change:options", follow);
    model.on("change:data", renew);
    return () => {{
      model.off("change:options", follow);
      model.off("change:data", renew);
      clearTimeout(waiting);
      shown.end();
    }};
  }},
}};
"""
_DEFINE = """<style>{style}</style>
<script>(window.distlabPieces ??= {{}})["{name}"] = {script};</script>
"""
_FRAGMENT = """<div id="{name}">{still}</div>
<script>{{ const require = distlabPieces.base(distlabPieces["{piece}"]);
const {{ piece }} = require("./{piece}.js"), host = document.getElementById("{name}");
require("./page.js").mountOnPage(piece, host, {data}, {options}); }}</script>
"""


class Explorable(anywidget.AnyWidget):
    """One piece: `data` is what it shows (plain JSON), `options` what the hand has chosen.

    `options` follows the controls, and setting it moves them. `fixed` is the part of `data` that
    never changes, so that it travels once. `still` is the picture (or the HTML) that stands in
    where scripts don't run. Raises InputError for an unknown piece.
    """

    data = traitlets.Dict().tag(sync=True)
    fixed = traitlets.Dict().tag(sync=True)
    options = traitlets.Dict().tag(sync=True)

    def __init__(
        self, piece: str, data: Mapping[str, Any], options: Mapping[str, Any], still: Picture | str
    ) -> None:
        self.piece, self.still = piece, still
        self._first = dict(options)
        self._esm = _WIDGET.format(base=wrap_base(), files=wrap_piece(piece), name=piece)
        self._css = join_style("core", piece)
        super().__init__(data=dict(data), options=dict(options))

    def to_html(self) -> str:
        """Return a fragment that shows the piece on any page: nothing is fetched, no kernel.

        It holds the still until its script runs. Several may stand on one page.
        """
        return write_fragment(self.piece, self._page_data(), self._first, self._still_html())

    def _page_data(self) -> dict[str, Any]:
        """Return `data` as a page without a kernel has it."""
        return self.data

    def _still_html(self) -> str:
        return self.still if isinstance(self.still, str) else self.still.html

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        """The widget, its still, and under MIME what a page needs to show it without a kernel."""
        words = f"Explorable {self.piece}: {getattr(self.still, 'alt', self.data.get('label', ''))}"
        bundle = add_still(super()._repr_mimebundle_(**options), self.still, html.unescape(words))
        what = {"piece": self.piece, "data": self._page_data(), "options": self._first}
        return bundle | {MIME: _write_json(what)}


def write_fragment(
    piece: str,
    data: Mapping[str, Any],
    options: Mapping[str, Any],
    still: str,
    place: str = "",
    known: set[str] | None = None,
) -> str:
    """Return a piece as HTML for any page; `still` is the HTML that its script replaces.

    `place` tells apart two of the same piece on one page. `known` are the scripts that the page
    has already, which a page with several pieces hands from one to the next.
    """
    told, chosen = _write_json(data, (",", ":")), _write_json(options)
    known = set() if known is None else known
    scripts = {"base": (wrap_base(), "core"), piece: (wrap_piece(piece), piece)}
    mark = hashlib.sha256((scripts[piece][0] + told + chosen + place).encode()).hexdigest()[:10]
    define = ""
    for name, (script, style) in scripts.items():
        if name not in known:
            safe = script.replace("</", "<\\/")
            define += _DEFINE.format(style=join_style(style), name=name, script=safe)
            known.add(name)
    fragment = {"name": f"ex-{piece}-{mark}", "still": still, "piece": piece, "options": chosen}
    short = told if len(told) <= MAX_PLAIN else min(told, _pack(told), key=len)
    return define + _FRAGMENT.format(**fragment, data=short)


def _pack(told: str) -> str:
    """Return `told`, JSON, as the string of JavaScript that the page unpacks."""
    return f'"{base64.b64encode(zlib.compress(told.encode(), 9)).decode()}"'


def _write_json(value: Any, separators: tuple[str, str] | None = None) -> str:
    """Return `value` as JSON that can stand in a script of a page."""
    text = json.dumps(value, sort_keys=True, allow_nan=False, separators=separators)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
