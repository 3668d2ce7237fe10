"""`distlab new lab`: begin a lab with a template that works."""

import argparse
from pathlib import Path

NEXT = """Each holds three small exercises that work as they are: put yours in their place. Then
  python -m distlab.grading.judges {lab}    works out the examples of the visible checks
  distlab build {lab}                       makes the lab and its solution
  pytest tests -k {lab}                     tries every answer; solutions/src/README.md says more"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "new",
        help="begin a lab with a template that builds, checks and grades as it stands",
        description="Write the four files of a new lab, each with three exercises that work.",
    )
    parser.add_argument("kind", choices=["lab"], help="what to begin")
    parser.add_argument("title", metavar="TITLE", help='in words: "precision and memory"')
    parser.add_argument("--root", type=Path, metavar="DIR", help="the course's folder")
    parser.set_defaults(run=run_new)


def run_new(parsed: argparse.Namespace) -> int:
    from distlab.authoring.new_lab import write_lab
    from distlab.authoring.sources import find_root

    root = find_root(parsed.root or Path.cwd())
    files = write_lab(root, parsed.title)
    for path in files:
        print(path.relative_to(root))
    print(NEXT.format(lab=files[0].name[:5]))
    return 0
