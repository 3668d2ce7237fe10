"""docs/command-line.md, made from the commands' own help: `python -m distlab.cli.command_page`."""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from distlab.cli import make_parser
from distlab.cli.examples import TASKS, list_examples
from distlab.cli.parser import OneLineParser
from utils.files import write_atomically

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"
HEAD = (
    "# Command line\n\n"
    "Every command of `distlab` by task, with its options. `distlab help COMMAND` prints the same "
    "in a terminal. Defaults are in brackets. `distlab --version` prints the versions that belong "
    "in a bug report. The exit status is 0 if all is well, 1 if a check found something, 2 if the "
    "input was wrong, and 130 if you interrupted the command.\n"
)


def write_page() -> str:
    """Return the page: each task's commands, and the commands below them."""
    commands = make_parser().list_commands()
    parts = [HEAD]
    for task, names in TASKS.items():
        parts.append(f"## {task}\n")
        for name in names:
            parts += _write_command(commands[name], "###")
    return "\n".join(parts)


def _write_command(parser: OneLineParser, mark: str) -> Iterator[str]:
    yield f"{mark} {parser.prog}\n\n{_escape(parser.description)}\n"
    examples = list_examples(parser.prog, parser.list_commands())
    yield "```sh\n" + "\n".join(examples) + "\n```\n"
    rows = [row for group in parser._action_groups for row in _list_rows(parser, group)]
    if rows:
        yield "| Argument or option | What it does |\n|---|---|\n" + "\n".join(rows) + "\n"
    if parser.epilog:
        yield _escape(parser.epilog) + "\n"
    for below in parser.list_commands().values():
        yield from _write_command(below, mark + "#")


def _list_rows(parser: OneLineParser, group: argparse._ArgumentGroup) -> Iterator[str]:
    """Yield a row for each argument of a group; our own group is named first."""
    shown = [
        a
        for a in group._group_actions
        if a.help != argparse.SUPPRESS
        and a.dest != "help"
        and not isinstance(a, argparse._SubParsersAction)
    ]
    if shown and group.title not in ("positional arguments", "options"):
        yield f"| **{group.title}** | |"
    written = parser._get_formatter()
    for action in shown:
        name = written._format_action_invocation(action)
        text = written._expand_help(action) if action.help else ""
        yield f"| `{name.replace('|', chr(92) + '|')}` | {_escape(text)} |"


def _escape(text: str) -> str:
    """Return `text` on one line, with Markdown's special characters escaped."""
    parts = re.split(r"(`[^`]+`)", " ".join(text.split()))
    parts[::2] = [re.sub(r"([|*_<>\[\]])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


if __name__ == "__main__":
    write_atomically(PAGE, write_page(), mode=0o644)
