"""Screenshots of an explorable: `python -m distlab.explorables.screenshots NAME FOLDER`.

Needs the package playwright and the program chromium, as the tests of the browser do.
"""

import shutil
import sys
from pathlib import Path

from distlab.explorables.catalog import EXAMPLES
from distlab.explorables.explorable import Explorable
from utils.checks import check_choice

WIDTHS_PX, THEMES = (390, 1000, 1920), ("light", "dark")
_PAGE = """<!doctype html><html lang="en" data-theme="{theme}"><head><meta charset="utf-8">
<title>{title}</title><style>body {{ margin: 16px; background: {paper}; color: {ink} }}</style>
</head><body><main><h1 style="font: 600 18px sans-serif">{title}</h1>{body}</main></body></html>
"""


def write_page(piece: Explorable, path: Path, theme: str = "light") -> Path:
    """Write a whole page that shows `piece`, for a browser to open from its folder."""
    paper, ink = ("#ffffff", "#1d1f22") if theme == "light" else ("#111418", "#eceef1")
    title = piece.data["label"]
    page = _PAGE.format(theme=theme, title=title, paper=paper, ink=ink, body=piece.to_html())
    path.write_text(page, encoding="utf-8")
    return path


def find_chromium() -> str | None:
    """Return the path of this machine's Chromium, None if there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


def main(name: str, folder: str) -> None:
    """Write NAME-THEME-WIDTH.png of the example `name` in `folder`, a second after its start."""
    from playwright.sync_api import sync_playwright

    check_choice("An explorable's name", name, EXAMPLES)
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        for theme in THEMES:
            path = write_page(EXAMPLES[name](), place / f"{name}-{theme}.html", theme)
            for width in WIDTHS_PX:
                page = browser.new_page(viewport={"width": width, "height": 700})
                page.on("console", lambda message: print(message.text))
                page.on("pageerror", lambda error: print(error))
                page.goto(path.resolve().as_uri())
                page.wait_for_timeout(1000)
                page.screenshot(path=place / f"{name}-{theme}-{width}.png", full_page=True)
                page.close()
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
