"""`distlab help [COMMAND]`, and `distlab completion SHELL`: a script for bash or zsh.

The script completes commands and options. It is plain text made from the parsers, so that
pressing Tab starts no Python; zsh runs it through its own `bashcompinit`.
"""

import argparse
from collections.abc import Iterator

from distlab.cli.parser import Commands, OneLineParser, add_command

EPILOG = (
    'In this shell: eval "$(distlab completion bash)". In every new shell: add that line to '
    "~/.bashrc. With zsh, write zsh for bash and add the line to ~/.zshrc."
)
ZSH_HEAD = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"
SCRIPT = """\
# Completion for distlab; made by `distlab completion`.
_distlab() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}"
  local command="" words="" number
  for ((number = 1; number < COMP_CWORD; number++)); do
    case "$command ${{COMP_WORDS[number]}}" in
      {commands}) command="$command ${{COMP_WORDS[number]}}" ;;
    esac
  done
  case "$command $before" in
{values}
    *)
      case "$command" in
{words}
      esac ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _distlab distlab
"""


def add_parser(commands: Commands) -> None:
    shown = add_command(commands, "help", run_help, "show the help of a command")
    shown.add_argument("words", nargs="*", metavar="COMMAND", help="train, or tf-config lint")
    text = "print a shell script that completes commands and options"
    script = add_command(commands, "completion", run_completion, text, epilog=EPILOG)
    script.add_argument("shell", choices=("bash", "zsh"), metavar="SHELL", help="bash or zsh")


def run_help(arguments: argparse.Namespace) -> int:
    """Print the help of the named command, or of `distlab` without one; return 0."""
    from distlab.cli import make_parser

    make_parser().find(arguments.words).print_help()
    return 0


def run_completion(arguments: argparse.Namespace) -> int:
    """Print the script; return 0."""
    from distlab.cli import make_parser

    head = ZSH_HEAD if arguments.shell == "zsh" else ""
    print(head + write_script(make_parser()), end="")
    return 0


def write_script(parser: OneLineParser) -> str:
    """Return the bash script that completes every command below `parser`, and its options."""
    commands = dict(_walk(parser, ""))
    words = [
        f'        "{path}") words="{" ".join(_list_words(command))}" ;;'
        for path, command in commands.items()
    ]
    values = [
        f'    "{path} {name}") words="{" ".join(map(str, action.choices))}" ;;'
        for path, command in commands.items()
        for name, action in command._option_string_actions.items()
        if action.choices is not None
    ]
    names = "|".join(f'"{path}"' for path in commands if path)
    return SCRIPT.format(commands=names, values="\n".join(values), words="\n".join(words))


def _walk(parser: OneLineParser, path: str) -> Iterator[tuple[str, OneLineParser]]:
    yield path, parser
    for name, below in parser.list_commands().items():
        yield from _walk(below, f"{path} {name}")


def _list_words(parser: OneLineParser) -> list[str]:
    """Return what may follow a command: commands below it, choices, options."""
    positional = [a for a in parser._get_positional_actions() if a.choices is not None]
    choices = [str(choice) for action in positional for choice in action.choices]
    return [*choices, *(o for o in parser._option_string_actions if o.startswith("--"))]
