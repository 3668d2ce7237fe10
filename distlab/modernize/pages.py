"""docs/migrating.md and lesson 02's table of old names, made from the table.

`python -m distlab.modernize.pages` writes both; a test compares what is committed.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from distlab.modernize.table import SILENT, STOPS, STYLE, OldForm, find_entry, read_table

COURSE = Path(__file__).parents[2]
PAGE = COURSE / "docs" / "migrating.md"
LESSON = COURSE / "notebooks" / "src" / "02_strategy_api.py"
INTRO = """# Programs of 2017 to 2024 on today's TensorFlow

Your program was written for the TensorFlow of its year, and stops on today's. Three things help,
in this order:

1. `distlab modernize train.py` reads it without running it. It lists what no longer exists or
   behaves differently, line by line, and what is silently wrong. `--diff` shows the mechanical
   changes, and `--write` makes them.
2. `distlab run --keras legacy train.py` runs it with Keras 2 as `tf.keras`. That needs no change
   for most programs written for TensorFlow 2. Without `distlab run`: set `TF_USE_LEGACY_KERAS=1`
   and install `tf_keras`.
3. `distlab run --keras patched --workers 2 train.py` lets Keras 3's `fit` train across workers.

Below is everything that `distlab modernize` knows, by the error's own words. It was tried on the
versions that the course pins: each old form does what this page says, and each new form runs.
"""
PARTS = (
    (STOPS, "It stops", "Look for the words of your error."),
    (SILENT, "It runs, and is wrong", "No error tells you of these."),
    (STYLE, "It works, and has a newer form", "These still run."),
)
OLD_NAMES = (
    "experimental-run-v2 datasets-from-function make-numpy-dataset strategy-reduce-axis "
    "experimental-multi-worker experimental-parameter-server experimental-tpu "
    "collective-communication reset-states reduction-enum reduction-auto legacy-optimizers "
    "estimator backup-experimental save-folder"
).split()
HEAD = ("| old | in TensorFlow 2.21, Keras 3 | today |", "|---|---|---|")


def write_page() -> str:
    """Return docs/migrating.md."""
    blocks = [INTRO]
    for says, title, words in PARTS:
        chosen = [entry for entry in read_table() if entry.says == says]
        blocks.append(f"## {title}\n\n{words}\n")
        blocks += [write_entry(e) for e in sorted(chosen, key=lambda e: get_title(e).lower())]
    return "\n".join(blocks)


def get_title(entry: OldForm) -> str:
    """Return the error's own words, or the entry's subject if there is no error."""
    return re.sub(r"^\W+", "", entry.error) or entry.name.replace("-", " ")


def write_entry(entry: OldForm) -> str:
    """Return one entry as Markdown: the words to search for, why, old and new form."""
    about = f" ({entry.name.replace('-', ' ')})" if entry.error else ""
    title = f"`{get_title(entry).replace('`', '')}`" if entry.error else get_title(entry)
    lines = [f"### {title}{about}\n", entry.why + "".join(_list_ways(entry)) + "\n"]
    if entry.old:
        lines.append(f"```python\n# old\n{entry.old}\n\n# today\n{entry.new}\n```\n")
    return "\n".join(lines)


def _list_ways(entry: OldForm) -> Iterator[str]:
    if entry.edit:
        yield " `distlab modernize --write` changes it."
    if entry.legacy:
        yield " With `--keras legacy` the old form runs unchanged."


def write_old_names() -> str:
    """Return lesson 02's table as lines of its source."""
    rows = list(HEAD)
    for entry in map(find_entry, OLD_NAMES):
        said = f"stops: {_escape(entry.error)}" if entry.says == STOPS else entry.says
        rows.append(f"| `{_escape(entry.old)}` | {said} | `{_escape(entry.new)}` |")
    return "".join(f"# {row}\n" for row in rows)


def _escape(code: str) -> str:
    """Return code for a table's cell, without the name that it's assigned to."""
    return re.sub(r"^\w+ = ", "", code).replace("|", "\\|")


def put_table(source: str) -> str:
    """Return lesson 02's source with the table in place of the one that is there."""
    table = re.compile(rf"(?m)^# {re.escape(HEAD[0])}\n(?:# \|.*\n)+")
    return table.sub(lambda found: write_old_names(), source, count=1)


def main() -> None:
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(write_page(), encoding="utf-8")
    LESSON.write_text(put_table(LESSON.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
