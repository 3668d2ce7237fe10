"""Sphinx's changes to the book's pages: the glossary's words, formulas, and the search's order."""

import json
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx import addnodes
from sphinx.application import Sphinx

from distlab.book.glossary import Word, find_uses, list_forms

UNTOUCHED = (
    nodes.title,
    nodes.reference,
    nodes.literal,
    nodes.raw,
    nodes.literal_block,
    addnodes.pending_xref,
    nodes.math,
)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect what is in this file, as Sphinx asks of an extension."""
    app.connect("doctree-resolved", link_words)
    app.connect("html-page-context", name_lessons)
    app.add_html_math_renderer("mathml", (_visit_math, None), (_visit_formula, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def slug(heading: str) -> str:
    """Return the anchor of a heading as JupyterLab makes it, so that lessons' own links hold."""
    return heading.replace(" ", "-")


# ---- words


def link_words(app: Sphinx, tree: nodes.document, page: str) -> None:
    """Link the first use of each of the glossary's words in a lesson or lab."""
    if not page.startswith(("notebooks/", "labs/")):
        return
    seen: set[str] = set()
    for text in [node for node in tree.findall(nodes.Text) if _is_prose(node)]:
        uses = find_uses(text.astext(), seen)
        if uses:
            text.parent.replace(text, list(_split(app, page, text.astext(), uses)))


def _is_prose(node: nodes.Node) -> bool:
    above = []
    while node.parent is not None:
        node = node.parent
        above.append(node)
    return any(isinstance(each, nodes.paragraph) for each in above) and not any(
        isinstance(each, UNTOUCHED) for each in above
    )


def _split(
    app: Sphinx, page: str, text: str, uses: list[tuple[int, int, Word]]
) -> Iterator[nodes.Node]:
    objects, here = app.env.get_domain("std").objects, 0
    for begin, end, word in uses:
        there, anchor = objects["term", word.name]
        address = f"{app.builder.get_relative_uri(page, there)}#{anchor}"
        yield nodes.Text(text[here:begin])
        link = nodes.reference(
            "",
            text[begin:end],
            internal=True,
            refuri=address,
            reftitle=word.meaning,
            classes=["book-word"],
        )
        yield link
        here = end
    yield nodes.Text(text[here:])


# ---- search: the lessons that the glossary names come first (`search_order.js`)


def name_lessons(app: Sphinx, page: str, template: str, context: Any, tree: Any) -> None:
    """Give the search page each word's lessons: {"all-reduce": ["notebooks/06-all-reduce"]}."""
    if page != "search":
        return
    pages = {name[10:12]: name for name in app.env.found_docs if name.startswith("notebooks/")}
    lessons = {
        form.lower(): [pages[number] for number in word.lessons]
        for form, word in list_forms().items()
    }
    app.add_js_file(None, body=f"globalThis.BOOK_LESSONS = {json.dumps(lessons)};")


# ---- formulas: the browser's own MathML, which needs no script and no fonts


def _visit_math(translator: Any, node: nodes.math) -> None:
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _visit_formula(translator: Any, node: nodes.math_block) -> None:
    formula = convert(node.astext(), "block")  # a wide one scrolls: by the keyboard too
    translator.body.append(f'<div class="book-formula" tabindex="0">{formula}</div>')
    raise nodes.SkipNode
