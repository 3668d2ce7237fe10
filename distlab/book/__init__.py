"""The book: the whole course as a static site, for a folder (`file://`) and for any web server.

    distlab book --output build/book

Nothing runs: pages are made of the notebooks as they are stored. In the order of the way:

- `notebooks.py`: a stored notebook becomes a page: explorables live, links turned to the site's.
- `written.py`: home, examples and sources; `library.py`: what is public in `utils`.
- `glossary.py` (its words: `glossary.md`), `errors.py`, `cards.py`: the pages to look things up in.
- `extension.py`: Sphinx's changes to the pages: words of the glossary, formulas.
- `site.py`: all of them in one folder, and Sphinx on top; then one zip.

- `conf`: Sphinx's settings of the book
"""
