"""One table of bad input for all functions, bad_calls.txt: each is refused in one line."""

from pathlib import Path
from typing import Any

import pytest
from tables import read_groups

from utils.errors import DistributedError

ROOMS = read_groups(Path(__file__).with_name("bad_calls.txt"))


def find_answer(call: str, names: dict[str, Any]) -> str:
    """Return the words with which a call is refused."""
    try:
        return f"accepted: {eval(compile(call, call, 'eval'), names)!r}"
    except DistributedError as error:
        return str(error)


@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.filterwarnings("ignore:overflow")
def test_every_bad_call_is_refused_in_one_line_that_says_why(monkeypatch, room):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "course")
    names: dict[str, Any] = {"__name__": room}
    wrong: list[str] = []
    for line in ROOMS[room]:
        call, *words = line.split(" | ")
        if not words:
            exec(call, names)
            continue
        said = find_answer(call, names)
        if said.startswith("accepted: ") or "\n" in said or not all(w in said for w in words):
            wrong.append(f"{line}\n    said: {said}")
    assert not wrong and len(ROOMS) == 16, "\n".join(wrong)
