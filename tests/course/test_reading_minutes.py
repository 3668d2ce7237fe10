"""The minutes that a lesson states, against what is in it."""

import json
import math
import re
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("[0-9]*.ipynb"))


def estimate_minutes(cells: list[dict]) -> float:
    """Return the minutes: 100 words or 7.5 lines of code in one, and pictures and exercises.

    A picture or a table takes one minute, a prediction one, a *Your turn* or an explorable three.
    """
    minutes = 0.0
    for cell in cells:
        text = "".join(cell["source"])
        if cell["cell_type"] == "code":
            minutes += len([line for line in text.splitlines() if line.strip()]) * 8 / 60
            shown = ["".join(o.get("data", {}).get("text/plain", "")) for o in cell["outputs"]]
            minutes += sum(said.startswith("Figure") for said in shown)
            minutes += 3 * sum(bool(re.match(r"Explor|Cockpit", said)) for said in shown)
            minutes -= 3 * sum(said.startswith("Explorable guess") for said in shown)
            continue
        words, *code = re.split(r"```", text.partition("## Further reading")[0])
        minutes += sum(len(part.strip().splitlines()) for part in code[::2]) * 8 / 60
        words = re.sub(r"\]\([^)]*\)", "", " ".join([words, *code[1::2]]))
        minutes += len(words.split()) / 100 + ("|---|" in words)
        minutes += 3 * words.count("**Your turn.**") + words.count("**Predict.**")
    return minutes


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_lesson_takes_about_the_minutes_that_it_states(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    said = re.search(r"\*\*Time:\*\* (\d+) minutes([^·]*)", "".join(cells[0]["source"]))
    later = re.search(r"and (\d+) for", said[2]) if "core" not in said[2] else None
    stated, found = int(said[1]) + (int(later[1]) if later else 0), estimate_minutes(cells)
    hint = f"{path.stem} states {stated} minutes, got {found:.0f} by count. "
    assert 0.85 * stated <= found <= 1.05 * stated, hint + f"State {5 * math.ceil(found / 5)}."
