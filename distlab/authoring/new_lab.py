"""The files of a new lab: three exercises that build, check and grade as they stand."""

import re
from pathlib import Path

from distlab.errors import CourseError

TEMPLATES = Path(__file__).parent / "lab_template"
EXERCISES = ("first", "second", "third")
PLACES = {
    "source": "solutions/src/{lab}_{slug}.py",
    "exercise": "distlab/labs/{lab}/exercise.py",
    "home": "distlab/labs/{lab}/__init__.py",
    "judge": "distlab/labs/{lab}/judge.py",
    "answers": "tests/answers/{lab}.py",
}
TO_REPLACE = (
    "One line for the course map: what the exercises are", ": a title of its own",
    "One or two sentences: what you will be able to do afterwards.",
    "What a learner needs to know for all exercises.", "This one, from the template",
    "Which index does worker 1 of 3 read first", "Worker 1 of 3, with 9 examples",
)  # fmt: skip
_PARTS = re.compile(r"^@@ .*\n", re.MULTILINE)


def write_lab(root: Path, title: str) -> list[Path]:
    """Write the five files of a lab called `title` under `root`, with the next free number.

    Raises CourseError for a title without letters, or where one of the files is there.
    """
    slug = "_".join(re.findall(r"[a-z0-9]+", title.lower()))
    if not re.search("[a-z]", slug):
        raise CourseError(f"{title!r}: a lab is named by words, such as 'precision and memory'")
    taken = [int(p.name[3:5]) for p in (root / "solutions" / "src").glob("lab[0-9][0-9]_*.py")]
    lab = f"lab{max(taken, default=0) + 1:02}"
    files = {kind: root / place.format(lab=lab, slug=slug) for kind, place in PLACES.items()}
    for path in files.values():
        if path.exists():
            raise CourseError(f"{path.relative_to(root)} is there already")
    words = {"lab": lab, "NN": lab[3:], "TITLE": title[:1].upper() + title[1:]}
    for kind, path in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        text = (TEMPLATES / f"{kind}.txt").read_text(encoding="utf-8")
        path.write_text(fill_template(text, words), encoding="utf-8")
    return list(files.values())


def find_template_words(source: str) -> list[str]:
    """Return the template's own sentences that a lab's source still has."""
    return [words for words in TO_REPLACE if words in source]


def fill_template(text: str, words: dict[str, str]) -> str:
    """Return a template's text with `@word@` replaced, its middle part once for each exercise."""
    before, exercise, after = [*_PARTS.split(text), "", ""][:3]
    middle = [
        _replace(exercise, {"N": str(number), "name": name, "NAME": name.upper(),
                            "function": f"{name}_share"})
        for number, name in enumerate(EXERCISES, start=1)
    ]  # fmt: skip
    return _replace("\n".join([before, *middle, after]), words).rstrip() + "\n"


def _replace(text: str, words: dict[str, str]) -> str:
    return re.sub(r"@(\w+)@", lambda found: words.get(found[1], found[0]), text)
