"""`distlab tf-config`: write the TF_CONFIG of every task of a cluster, and check what there is."""

import argparse
import json
import os
import sys
from pathlib import Path

from distlab.cli.parser import Commands, add_command, declare
from distlab.errors import CourseError

MAX_FILE_BYTES = 1_000_000
BUILD = """
--workers N=2  number of workers
--ps N=0  number of parameter servers
--chief  add a chief (with --ps, the coordinator)
--evaluator  add an evaluator
--host HOST  host name or address; repeat for more hosts [127.0.0.1]
--base-port N=12345  first port of each host
--task JOB:INDEX  print only this task, such as worker:0
--export  print export lines for a shell
"""


def add_parser(subparsers: Commands) -> None:
    parser = subparsers.add_parser(
        "tf-config",
        help="write and check TF_CONFIG",
        description="Write the TF_CONFIG of every task of a cluster, or check one.",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_build(actions)
    _add_lint(actions)


def _add_build(actions: Commands) -> None:
    build = add_command(
        actions,
        "build",
        run_build,
        "print one TF_CONFIG per task",
        "Print the TF_CONFIG of each task, one JSON object per line. Tasks are assigned to the "
        "hosts in turn. On each host, ports count up from the base port.",
    )
    declare(build, BUILD, host={"action": "append"})


def _add_lint(actions: Commands) -> None:
    check = add_command(
        actions,
        "lint",
        run_lint,
        "check a TF_CONFIG",
        "Check one or more TF_CONFIGs; several are checked as the tasks of one cluster. The exit "
        "status is 1 if one has an error, 2 if a file can't be read.",
    )
    text = 'a file, - for standard input, or the JSON itself: "$TF_CONFIG" [the variable TF_CONFIG]'
    check.add_argument("source", nargs="*", metavar="FILE|-|TEXT", help=text)
    strategies = ("multi-worker", "parameter-server")
    text = "also check what this strategy needs"
    check.add_argument("--strategy", choices=strategies, help=text)
    check.add_json()


def run_build(arguments: argparse.Namespace) -> int:
    """Print the configurations; return 0. Raises CourseError for a cluster that can't be."""
    from utils.tf_config import build_cluster, build_tf_configs, format_export

    hosts = arguments.host or ["127.0.0.1"]
    counts = (arguments.workers, arguments.ps, arguments.chief)
    cluster = build_cluster(*counts, hosts=hosts, base_port=arguments.base_port)
    texts = build_tf_configs(cluster, evaluator=arguments.evaluator)
    if arguments.task is not None:
        if arguments.task not in texts:
            raise CourseError(f"--task must be one of {', '.join(texts)}, got {arguments.task}.")
        texts = {arguments.task: texts[arguments.task]}
    for name, text in texts.items():
        if arguments.export and len(texts) > 1:
            print(f"# {name}")
        print(format_export(text) if arguments.export else text)
    return 0


def run_lint(arguments: argparse.Namespace) -> int:
    """Print the findings; return 1 when one is an error, else 0."""
    from utils.tf_config import is_right, lint_together

    texts = read_sources(arguments.source)
    named = lint_together(texts, arguments.strategy)
    if len(texts) == 1:
        named = [(name, finding) for name, finding in named if name != "together"]
    right = is_right(finding for _, finding in named)
    if arguments.json:
        records = [{"source": name, **finding.to_record()} for name, finding in named]
        print(json.dumps({"ok": right, "sources": list(texts), "findings": records}, indent=2))
        return 0 if right else 1
    for name, finding in named:
        print(f"{name}: {finding}" if len(texts) > 1 else finding)
    errors = sum(finding.severity == "error" for _, finding in named)
    checked = f"{len(texts)} configuration{'s' * (len(texts) != 1)}"
    print(f"{checked}: " + ("right" if right else f"{errors} error{'s' * (errors != 1)}"))
    return 0 if right else 1


def read_sources(sources: list[str]) -> dict[str, str]:
    """Return name -> TF_CONFIG for files, "-", JSON strings, or the variable if there are none.

    An unquoted `$TF_CONFIG` that a shell has split into words is put together again.
    Raises CourseError for a file that can't be read or a variable that isn't set.
    """
    if not sources:
        if "TF_CONFIG" not in os.environ:
            raise CourseError(
                "TF_CONFIG isn't set. Set it, name a file, or give - to read standard input."
            )
        return {"TF_CONFIG": os.environ["TF_CONFIG"]}
    if sources[0].lstrip().startswith("{") and not any(_is_configuration(s) for s in sources[1:]):
        sources = [" ".join(sources)]
    texts: dict[str, str] = {}
    for number, source in enumerate(sources):
        name, text = _read_source(source, number)
        texts |= _name_texts(name, text)
    return texts


def _is_configuration(source: str) -> bool:
    return source == "-" or (source.startswith("{") and '"cluster"' in source)


def _read_source(source: str, number: int) -> tuple[str, str]:
    if source == "-":
        return "input", sys.stdin.read(MAX_FILE_BYTES)
    if not source.strip() or source.lstrip()[0] in "{'\"[" or "\n" in source:
        return f"text {number + 1}" if number else "text", source
    path = Path(source)
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise CourseError(
                f"{source} is too large for a TF_CONFIG. Name the file that holds it."
            )
        return source, path.read_text(encoding="utf-8-sig")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise CourseError(
            f"{source} can't be read ({reason}). Name a file that holds TF_CONFIG."
        ) from error
    except UnicodeDecodeError as error:
        raise CourseError(f"{source} must be text in UTF-8. Write the JSON as text.") from error


def _name_texts(name: str, text: str) -> dict[str, str]:
    from utils.tf_config import split_texts

    parts = split_texts(text)
    if len(parts) == 1:
        return {name: parts[0]}
    return {f"{name}, number {number}": part for number, part in enumerate(parts, start=1)}
