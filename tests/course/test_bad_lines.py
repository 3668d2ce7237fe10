"""One table of bad input for all commands, bad_lines.txt: one line each, status 2."""

import json
import shlex
from pathlib import Path

import pytest
from command_lines import run_all

pytestmark = pytest.mark.slow(20)
ROOT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_name("bad_lines.txt")
OTHERS = "10.0.0.1:2950"  # an address in a network: a line says who can reach it
PROFILE = {
    "forward_seconds": 0.1,
    "backward_seconds": 0.2,
    "gradient_bytes": 1e8,
    "batch": 256,
    "flops_per_example": 24e9,
}
FILES = {
    "x.py": "",
    "quick_input.py": "number = 3",
    "broken_input.py": "1 / 0",
    "lacking_input.py": "import no_such_thing_anywhere",
    "profile.json": json.dumps(PROFILE),
    "cut.json": "[1",
    "list.json": "[1]",
    "unknown.json": '{"lr": 1}',
    "several.json": '{"epochs": [1]}',
    "fast.json": '{"learning_rate": "fast"}',
    "three.json": '{"strategy": 3}',
}


def read_table():
    """Return (arguments, words that the message must hold) of each row."""
    rows, short = [], {}
    for line in TABLE.read_text().splitlines():
        name, is_short, meaning = line.partition(" = ")
        if is_short and name.isupper():
            short[f"${name}"] = meaning
        elif line and not line.startswith("#"):
            command, *says = line.split(" | ")
            words = " ".join(short.get(word, word) for word in command.split(" "))
            rows.append((shlex.split(words), says))
    return rows


@pytest.mark.parametrize("in_course", [False, True])
def test_every_bad_line_is_refused_in_one_line_that_says_why(tmp_path, monkeypatch, in_course):
    """Commands on a learner's labs run in the course, the others in a folder with a profile."""
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    for name in ("folder.py", "folder"):
        (tmp_path / name).mkdir()
    (tmp_path / "windows.sh").write_bytes(b"#!/bin/sh\r\necho ran\r\n")
    (tmp_path / "windows.sh").chmod(0o755)
    rows = [row for row in read_table() if (row[0][0] in ("check", "submit", "reset")) == in_course]
    assert len(rows) >= (5 if in_course else 100)
    seen = run_all([words for words, _ in rows], ROOT if in_course else tmp_path)
    wrong = [
        (words, says, status, output, errors)
        for (words, says), (status, output, errors) in zip(rows, seen, strict=True)
        if (status, output, errors.count("\n")) != (2, "", 1 + (OTHERS in words))
        or not errors.startswith((f"distlab {words[0]}", "distlab:"))
        or not all(each in errors for each in says)
        or ", its options" in errors
        or len(errors) > 500
    ]
    assert not wrong, "\n".join(map(str, wrong))
