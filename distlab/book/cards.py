"""All cheat sheets on one page: the section of that name of each lesson."""

import json
import re
from pathlib import Path

from distlab.book.notebooks import turn_links

_CARD = re.compile(r"^## Cheat sheet\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r"\A# (.+)$", re.MULTILINE)
INTRO = """# Cheat sheets

The cheat sheet of every lesson, to paste from or to print: two columns on paper, without menus.

"""


def write_cards(course: Path) -> str:
    """Return the page of the cards of all lessons that have one."""
    cards = []
    for path in sorted(course.glob("notebooks/[0-9][0-9]-*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
        title, card = _TITLE.search(texts[0])[1], _CARD.search("\n".join(texts))
        if card:
            words = re.sub(r"\]\((\d\d-[\w-]+\.ipynb)", r"](../notebooks/\1", turn_links(card[1]))
            link = f"[{path.stem[:2]} · {title}](../notebooks/{path.name})"
            cards.append(f"## {link}\n\n{words.strip()}\n")
    return INTRO + "\n".join(cards)
