"""The parser of every `distlab` command: errors in one line, with the probable correction.

Options are written in full everywhere: an abbreviation that works today may mean
another option tomorrow.
"""

import argparse
import re
import sys
from collections.abc import Callable, Collection, Iterable
from typing import Any, NoReturn
from unicodedata import category

from distlab.cli.examples import TASKS, list_examples
from distlab.errors import CourseError
from utils.checks import MAX_LISTED, UNSEEN, list_few, suggest

MAX_WHOLE = 10**10  # no count here is larger
MAX_WORD = 160  # of an error: a number of 400 digits needs no repeating
KINDS = {"N": int, "X": float, "S": float, "M": float, "SECONDS": float}  # else text
LONG_USAGE = 7  # arguments of a command whose usage line doesn't list them

Commands = argparse._SubParsersAction  # what `add_parser` of a command's module gets


class DefaultsInBrackets(argparse.HelpFormatter):
    """Shows an option's default in brackets, unless its help text already does."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        default, text = action.default, action.help
        has_none = isinstance(default, bool | list) or default in (None, "", argparse.SUPPRESS)
        if not text or not action.option_strings or "[" in text or has_none:
            return text
        shown = "%(default)g" if isinstance(default, float) else "%(default)s"
        return f"{text} [{shown}]"

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """Return an option's names and its value once, as Python 3.13 does, in all versions."""
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"


class OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line (what was wrong, what is allowed) and exit status 2.

    Takes no abbreviated options and no absurd whole numbers.
    """

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(
            *arguments, **{**settings, "allow_abbrev": False, "formatter_class": DefaultsInBrackets}
        )
        self.register("type", int, read_whole)
        self.register("type", float, read_number)

    def format_help(self) -> str:
        """Return the help: commands by task, options, and examples at the end."""
        if self.usage is None and len(self._actions) > LONG_USAGE:
            names = [
                self._get_formatter()._format_args(a, a.dest)
                for a in self._get_positional_actions()
            ]
            self.usage = " ".join([self.prog, "[options]", *names])
        shown = self._format_tasks() if self.prog == "distlab" else super().format_help()
        examples = [] if self.prog == "distlab" else list_examples(self.prog, self.list_commands())
        lines = "".join(f"\n  {text}" for text in examples).replace("\n    ", "\n      ")
        return f"{shown}\nexamples:{lines}\n" if examples else shown

    def _format_tasks(self) -> str:
        """Return the help of `distlab` itself."""
        commands = next(a for a in self._actions if isinstance(a, argparse._SubParsersAction))
        helps = {action.dest: action for action in commands._get_subactions()}
        written = self._get_formatter()
        written.add_usage(self.usage, self._actions, [])
        written.add_text(self.description)
        options = {"Options": self._get_optional_actions()}
        tasks = {task: [helps[n] for n in names if n in helps] for task, names in TASKS.items()}
        for title, actions in (tasks | options).items():
            written.start_section(title)
            written.add_arguments(actions)
            written.end_section()
        written.add_text(self.epilog)
        return written.format_help()

    def error(self, message: str) -> NoReturn:
        if message.startswith("the following arguments are required"):  # rather, which is odd
            self._refuse([word for word in self._words if self._is_unknown_option(word)])
        self.exit(2, f"{self.prog}: {shorten_words(message)}\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        self._words = list(sys.argv[1:] if args is None else args)
        parsed, unknown = super().parse_known_args(self._words, namespace)
        self._refuse(unknown)
        parsed.prog = getattr(parsed, "prog", self.prog)  # of the innermost command
        return parsed, []

    def _is_unknown_option(self, word: str) -> bool:
        known = word.partition("=")[0] in self._option_string_actions
        return word.startswith("--") and word != "--" and not known

    def _refuse(self, unknown: list[str]) -> None:
        if unknown:
            near = suggest(unknown[0].partition("=")[0], self._option_string_actions)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{near}")

    def _get_values(self, action: argparse.Action, words: list[str]) -> Any:
        if "" in words and action.option_strings:  # as of "$FOLDER" where that isn't set
            raise argparse.ArgumentError(action, "must not be empty. Give a value, or leave it out")
        return super()._get_values(action, words)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(
                action, f"invalid choice: {value!r}{offer(value, action.choices)}"
            )

    def add_json(self) -> None:
        """Add `--json`, which every command that prints results has."""
        self.add_argument("--json", action="store_true", help="print one JSON object")

    def list_commands(self) -> dict[str, "OneLineParser"]:
        """Return the parsers of the commands below this one, by name."""
        below = self._subparsers
        return dict(below._group_actions[0].choices) if below else {}

    def find(self, words: Iterable[str]) -> "OneLineParser":
        """Return the parser of the command that `words` name, such as ("tf-config", "lint")."""
        parser = self
        for word in words:
            commands = parser.list_commands()
            if word not in commands:
                known = offer(word, commands) if commands else ", as it has no subcommands"
                raise CourseError(f"{parser.prog} has no command {word!r}{known}")
            parser = commands[word]
        return parser


def add_command(
    commands: Commands,
    name: str,
    run: Callable[[Any], int],
    help: str,
    description: str = "",
    epilog: str | None = None,
) -> OneLineParser:
    """Declare the command `name`, which `run` carries out, and return its parser.

    `run` takes the parsed arguments and returns an exit status. Without a `description`, the
    help begins with `help` as a sentence.
    """
    text = description or f"{help[0].upper()}{help[1:]}."
    parser = commands.add_parser(name, help=help, description=text, epilog=epilog)
    parser.set_defaults(run=run)
    return parser


def declare(
    parser: argparse._ActionsContainer, text: str, **more: dict[str, Any]
) -> argparse._ActionsContainer:
    """Declare the arguments and options of `text`, one on each line, the help after two spaces.

        LAB                  the lab to grade, such as lab05
        files:
        --output DIR=grades  write pages and tables to this folder
        --jobs N=4           grade N submissions at a time
        --json               print one JSON object

    A line that ends with a colon begins a group of the help. An indented line continues the one
    above it. N is a whole number, X, M, S and SECONDS are numbers, and other words stand for text.
    `more` has what else `add_argument` gets for an argument, by its name. Returns the last group.
    """
    group = parser
    for line in re.sub(r"\n +", " ", text.strip()).split("\n"):
        if line.endswith(":") and "  " not in line:
            group = parser.add_argument_group(line[:-1])
            continue
        head, help = re.split("  +", line, maxsplit=1)
        words = head.replace(",", "").split()
        names = [word for word in words if word[0] == "-"] or [words[0].lower()]
        settings: dict[str, Any] = {"action": "store_true"}
        if words[-1][0] != "-":
            metavar, given, default = words[-1].partition("=")
            kind = KINDS.get(metavar, str)
            settings = {
                "metavar": metavar,
                "type": kind,
                "default": kind(default) if given else None,
            }
        name = next((name[2:] for name in names if name[:2] == "--"), names[0]).replace("-", "_")
        group.add_argument(*names, help=help, **settings | more.get(name, {}))
    return group


def add_program_options(parser: OneLineParser) -> None:
    """Declare the words after PROGRAM, which that gets as they are."""
    own = {"nargs": argparse.REMAINDER, "metavar": "its options"}
    parser.add_argument("arguments", help="passed to PROGRAM unchanged", **own).required = False


def offer(word: Any, choices: Collection[Any]) -> str:
    """Return the probable choice, then a few of all choices."""
    near = suggest(str(word), choices)
    return (
        near if near and len(choices) > MAX_LISTED else f"{near} (choose from {list_few(choices)})"
    )


def read_number(text: str) -> float:
    """Return the number that `text` is; raise ArgumentTypeError for any other text."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, got {text!r}") from None


def read_whole(text: str) -> int:
    """Return the whole number that `text` is; raise ArgumentTypeError for any other text."""
    try:
        number = int(text[:MAX_WORD])
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, got {text!r}") from None
    if len(text) > MAX_WORD or abs(number) > MAX_WHOLE:
        limits = f"must be a whole number from {-MAX_WHOLE:,} to {MAX_WHOLE:,}"
        raise argparse.ArgumentTypeError(f"{limits}, got {text}")
    return number


def shorten_words(text: str) -> str:
    """Return `text` on one line: long words cut, what a terminal obeys written as its code."""
    line = text.replace("\n", " ")
    line = "".join(ascii(c)[1:-1] if category(c) in UNSEEN else c for c in line)
    return re.sub(rf"\S{{{MAX_WORD},}}", lambda found: found[0][:40] + "…", line)
