"""`distlab book` makes the course a static site, to read without a kernel."""

import argparse
from pathlib import Path

from distlab import progress
from distlab.cli.long_command import say_waiting
from distlab.cli.parser import Commands, add_command, declare

OPTIONS = """
--output DIR  write the site to this folder
--zip FILE  also pack it into one file for a learning platform
"""


def add_parser(commands: Commands) -> None:
    book = add_command(
        commands,
        "book",
        run_book,
        "make a static site of the course",
        "Make a static site of the whole course from the stored notebooks, without running them. "
        "Open index.html in its folder or put it on any web server. It needs no network. "
        "The packages of '.[book]' must be installed.",
    )
    more = {"output": {"type": Path, "default": Path("build/book")}, "zip": {"type": Path}}
    declare(book, OPTIONS, **more)


def run_book(parsed: argparse.Namespace) -> int:
    """Build the book of the course around this folder; return 1 if a page has a fault."""
    from distlab.book.site import build_book, check_folder, write_zip

    course = progress.require_course()
    out = parsed.output.resolve()
    check_folder(out)
    with say_waiting("distlab book: writing the pages"):
        book = build_book(course, out, course / ".distlab" / "book")
    for warning in book.warnings:
        print(warning)
    print(f"{book.pages} pages: open {parsed.output / 'index.html'}")
    if parsed.zip:
        write_zip(out, parsed.zip)
        print(f"{parsed.zip}: {parsed.zip.stat().st_size / 1e6:.1f} MB")
    return 1 if book.warnings else 0
