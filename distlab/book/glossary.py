"""The field's words: `glossary.md` read, its page, and where a text uses one of them first."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("glossary.md")
_ENTRY = re.compile(r"^(\S.*)\n: (.+) \((\d\d(?:, \d\d)*)\)$", re.MULTILINE)


@dataclass(frozen=True)
class Word:
    """One entry: the word itself, its other forms, what it means, and the lessons about it."""

    name: str
    forms: tuple[str, ...]
    meaning: str
    lessons: tuple[str, ...]


@cache
def read_words() -> tuple[Word, ...]:
    """Return the glossary's entries in the order of the alphabet."""
    found = []
    for names, meaning, lessons in _ENTRY.findall(FILE.read_text(encoding="utf-8")):
        name, *forms = (each.strip() for each in names.split("|"))
        found.append(Word(name, tuple(forms), meaning, tuple(lessons.split(", "))))
    return tuple(sorted(found, key=lambda word: word.name.lower()))


def write_glossary(lessons: dict[str, str]) -> str:
    """Return the glossary's page; `lessons` are their files by number, such as "05-loss-scaling".

    Other names of a thing get their own entry; plurals only find it.
    """
    lines = [
        "# Glossary",
        "",
        "The field's words as this course uses them, and the lessons about "
        "each. In the lessons, the first use of a word leads here.",
        "",
        "```{glossary}",
    ]
    for word in read_words():
        links = ", ".join(f"[{n}](../notebooks/{lessons[n]}.ipynb)" for n in word.lessons)
        noun = "Lesson" if len(word.lessons) == 1 else "Lessons"
        names = [word.name, *(form for form in word.forms if form != f"{word.name}s")]
        lines += [*names, f"  {word.meaning} {noun} {links}.", ""]
    return "\n".join([*lines, "```", ""])


@cache
def _make_pattern() -> re.Pattern[str]:
    forms = sorted(list_forms(), key=len, reverse=True)
    return re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, forms))})(?![\w-])", re.IGNORECASE)


@cache
def list_forms() -> dict[str, Word]:
    """Return each word's entry by every form that it may take."""
    return {form: word for word in read_words() for form in (word.name, *word.forms)}


def find_uses(text: str, seen: set[str]) -> list[tuple[int, int, Word]]:
    """Return where `text` uses words that `seen` hasn't: (begin, end, word), in order.

    The words found are added to `seen`. What is written in capitals must be so in the text.
    """
    forms = list_forms()
    small = {form.lower(): word for form, word in forms.items() if form.islower()}
    found = []
    for match in _make_pattern().finditer(text):
        word = forms.get(match[0]) or small.get(match[0].lower())
        if word is not None and word.name not in seen:
            seen.add(word.name)
            found.append((match.start(), match.end(), word))
    return found
