"""Error messages on one page, with cause and fix.

All of it comes from what the course itself uses: `distlab diagnose` and the labs' checks. A
message is its pattern in words, with "…" for what differs each time.
"""

import importlib
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from distlab.exercises.exercise import Exercise
from distlab.exercises.refusing import EXPLANATIONS
from distlab.labs.lab07.failing_logs import LOGS, fill_in
from distlab.modernize.table import OldForm, read_table
from utils.tf_config import diagnose
from utils.tf_config.symptoms import (
    COLLATERAL,
    CONFIGURATION,
    EXCEPTIONS,
    OLD_PROGRAMS,
    PROGRAM,
    Symptom,
)

INTRO = """# Error messages, their causes and fixes

Paste what you see, a line or a whole log, or describe it in a few words. The entries that fit your
text come first, then the nearest ones. `distlab diagnose` reads the logs of all tasks together, in
a shell.

```{raw} html
<div class="book-find"><label for="book-message">Your message or log</label>
<textarea id="book-message" rows="3" spellcheck="false"></textarea>
<p id="book-found" role="status"></p><div id="book-nearest"></div></div>
<script src="../_static/finder.js"></script>
```
"""
KINDS = {
    "TF_CONFIG cannot be read": CONFIGURATION,
    "The program stops": PROGRAM,
    "The program raises an error": EXCEPTIONS,
    "Another task has gone": COLLATERAL,
}
ALSO_SAID = {  # by the start of the cause: other words for it, as people paste or search them
    "port {port} is taken": "Address already in use",
    "{job}:{index} died or froze": "Task … heartbeat timeout. This indicates that the remote "
    "task has failed",
    "another task cannot be reached": "failed to connect to all addresses; … Connection refused",
}


def write_errors(course: Path) -> str:
    """Return the page of errors; `course` has the labs whose checks are listed."""
    blocks, patterns = [INTRO], []
    for title, symptoms in KINDS.items():
        blocks.append(f"## {title}\n")
        entries = [_write_entry(*_read_symptom(symptom)) for symptom in symptoms]
        is_folded = symptoms in (EXCEPTIONS, COLLATERAL)
        blocks += _fold(f"{len(entries)} messages", entries) if is_folded else entries
        patterns += [{"text": _write_pattern(each), "needs": each.needs} for each in symptoms]
    blocks.append("## Programs of 2017 to 2024\n\n[All of them](../docs/migrating.md).\n")
    old = [entry for entry in read_table() if entry.error and entry.old]
    known = [to_javascript(symptom.pattern.pattern) for symptom in OLD_PROGRAMS]
    known += [_escape(entry.error) for entry in old]
    patterns += [{"text": text, "needs": ""} for text in known]
    entries = [_write_entry(*_read_symptom(symptom)) for symptom in OLD_PROGRAMS]
    blocks += _fold(f"{len(known)} messages", [*entries, *map(_write_old, old)])
    blocks += ["## No error: the program hangs, or its result is wrong\n", *_write_silent()]
    blocks.append("## What a lab's check says of TensorFlow's errors\n")
    for pattern, words in EXPLANATIONS.items():
        cause, _, cure = words.partition(": ")
        blocks.append(_write_entry(list(say_pattern(pattern)), cause, cure))
        patterns.append({"text": to_javascript(pattern), "needs": ""})
    blocks += ["## What a lab's check says of an answer\n", *_write_mistakes(course)]
    listed = json.dumps(patterns).replace("<", "\\u003c")
    script = f'<script type="application/json" id="book-patterns">{listed}</script>'
    return "\n".join([*blocks, "```{raw} html", script, "```", ""])


def _write_entry(said: Iterable[str], cause: str, cure: str, look: str = "book-pattern") -> str:
    messages = "\n".join(f"{_code(each)}\n" for each in said)
    parts = f"**Cause:** {_plain(cause)}"
    parts += f"\n\n**Fix:** {_plain(cure)}" if cure else ""
    return f":::{{container}} book-error {look}\n{messages}\n{parts}\n:::\n"


def _code(text: str) -> str:
    """Write `text` as code, whatever backticks it has itself."""
    fence = "`" * (max(map(len, re.findall(r"`+", text)), default=0) + 1)
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _plain(text: str) -> str:
    """Write `text` so that only its backticks mean anything."""
    parts = text.split("`")
    for k in range(0, len(parts), 2):
        parts[k] = re.sub(r"([\\*_<>\[\]{}$#|~])", r"\\\1", parts[k])
    words = "`".join(parts)
    is_name = re.match(r"\w+(\.|\\_)\w", words)  # strategy.run, merge_call
    return words if is_name else words[:1].upper() + words[1:]


def _read_symptom(symptom: Symptom) -> tuple[list[str], str, str]:
    """Return the message, its cause and its fix, with placeholders for the parts that vary."""
    fill = re.compile(r"\{\w+\}")
    cause = fill.sub("…", symptom.cause.replace("{job}:{index}", "another task"))
    cure = fill.sub("…", symptom.cure)
    return [*say_pattern(symptom.pattern.pattern), *_list_also(symptom)], cause, cure


def _list_also(symptom: Symptom) -> list[str]:
    return [words for start, words in ALSO_SAID.items() if symptom.cause.startswith(start)]


def _write_pattern(symptom: Symptom) -> str:
    """Return the symptom's pattern, and its other words, as JavaScript writes them."""
    also = [".*".join(map(_escape, re.split(" ?… ?", each))) for each in _list_also(symptom)]
    return "|".join([to_javascript(symptom.pattern.pattern), *also])


def _write_old(entry: OldForm) -> str:
    return _write_entry([entry.error], entry.why, f"`{entry.new.splitlines()[0]}`")


def _write_silent() -> Iterator[str]:
    """The mistakes that leave no error: what the log says, and how diagnose reads it."""
    members = {"cluster": {"worker": ["a:2222", "b:2222"]}, "task": {"type": "worker", "index": 0}}
    for name in ("missing-peer", "alone"):
        log = fill_in(LOGS[name], 0).strip()
        found = diagnose(log, json.dumps(members))
        if found is not None:
            yield _write_entry([found.evidence], found.cause, found.cure, "book-words")


def _write_mistakes(course: Path) -> Iterator[str]:
    for path in sorted(course.glob("labs/lab*.ipynb")):
        lab = path.stem.partition("-")[0]
        module = importlib.import_module(f"distlab.labs.{lab}.exercise")
        exercises = [each for each in vars(module).values() if isinstance(each, Exercise)]
        yield f"### [Lab {lab[3:]}](../labs/{path.name})\n"
        entries = [
            _write_entry([exercise.function], words, "", "book-words")
            for exercise in exercises
            for words in dict.fromkeys(exercise.mistakes.values())
        ]
        about = ", ".join(f"<code>{each.function}</code>" for each in exercises if each.mistakes)
        words = about.replace(" and ", "</code> and <code>")  # an exercise with two functions
        yield from _fold(f"{len(entries)} messages about {words}", entries)


def _fold(summary: str, entries: Iterable[str]) -> Iterator[str]:
    """Fold the entries under a line of HTML; book.js opens what is looked for, or printed."""
    opening = f'<details class="book-fold"><summary>{summary}</summary>'
    yield f"```{{raw}} html\n{opening}\n```\n"
    yield from entries
    yield "```{raw} html\n</details>\n```\n"


# ---- a pattern in words, and in JavaScript


def say_pattern(pattern: str) -> Iterator[str]:
    """Yield the messages that a regular expression means, "…" standing for what differs."""
    tree = list(re._parser.parse(pattern))
    branches = tree[0][1][1] if len(tree) == 1 and str(tree[0][0]) == "BRANCH" else [tree]
    for branch in branches:
        text = " ".join(_say(branch).split())
        yield re.sub(r"(?:… ?)*…", "…", text).strip(" ,:")


def _say(tree: Iterable[tuple[Any, Any]]) -> str:
    return "".join(_say_part(str(kind), value) for kind, value in tree)


def _say_part(kind: str, value: Any) -> str:
    if kind == "LITERAL":
        return chr(value)
    if kind in ("MAX_REPEAT", "MIN_REPEAT"):
        least, most, inside = value
        if most == 1:  # may be left out
            return ""
        return _say(inside) if least == most else "…"
    if kind == "SUBPATTERN":
        return _say(value[3]) if value[0] is None else "…"
    if kind == "BRANCH":
        return _say(value[1][0])
    return "" if kind.startswith(("AT", "ASSERT")) else "…"


def _escape(text: str) -> str:
    """Return a pattern that means the text itself, in Python and in JavaScript."""
    return re.sub(r"([.*+?^${}()|\[\]\\])", r"\\\1", text)


def to_javascript(pattern: str) -> str:
    """Return a Python pattern as JavaScript writes it: named groups are all that differs."""
    return pattern.replace("(?P<", "(?<")
