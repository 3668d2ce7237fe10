"""The files of a new lab: one exercise that builds, checks and grades as it stands."""

import re
from pathlib import Path

from distlab.errors import CourseError

TEMPLATES = Path(__file__).parent / "lab_template"
PLACES = {
    "source": "solutions/src/{lab}_{slug}.py",
    "exercise": "distlab/labs/{lab}/exercise.py",
    "home": "distlab/labs/{lab}/__init__.py",
    "judge": "distlab/labs/{lab}/judge.py",
}
TO_REPLACE = (
    "One line for the course map: what the exercises are",
    ": a title of its own",
    "One or two sentences: what you will be able to do afterwards.",
    "What a learner needs to know for all exercises.",
    "This one, from the template",
    "Which index does worker 1 of 3 read first",
    "Worker 1 of 3, with 9 examples",
)


def write_lab(root: Path, title: str) -> list[Path]:
    """Write the four files of a lab called `title` under `root`, with the next free number.

    Raises CourseError for a title without letters, or where one of the files is there.
    """
    slug = "_".join(re.findall(r"[a-z0-9]+", title.lower()))
    if not re.search("[a-z]", slug):
        raise CourseError(
            f"A lab's title must be words, such as 'precision and memory', got {title!r}."
        )
    taken = [int(p.name[3:5]) for p in (root / "solutions" / "src").glob("lab[0-9][0-9]_*.py")]
    lab = f"lab{max(taken, default=0) + 1:02}"
    files = {kind: root / place.format(lab=lab, slug=slug) for kind, place in PLACES.items()}
    for path in files.values():
        if path.exists():
            raise CourseError(f"{path.relative_to(root)} exists already. Move it away.")
    words = {"lab": lab, "NN": lab[3:], "TITLE": title[:1].upper() + title[1:]}
    for kind, path in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        text = (TEMPLATES / f"{kind}.txt").read_text(encoding="utf-8")
        text = re.sub(r"@(\w+)@", lambda found: words.get(found[1], found[0]), text)
        path.write_text(text, encoding="utf-8")
    return list(files.values())


def find_template_words(source: str) -> list[str]:
    """Return the template's own sentences that a lab's source still has."""
    return [words for words in TO_REPLACE if words in source]
