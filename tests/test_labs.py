"""Lab 01 end to end: its checks and hidden tests, stock nbgrader, the generated files."""

import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest

from utils.authoring import regions, sources
from utils.authoring.build import find_stale
from utils.authoring.style_labs import check_graded_cell
from utils.exercises import lab01
from utils.exercises.predict import show_guess

ROOT = Path(__file__).parents[1]
LABS = [t for t in sources.find_targets(ROOT) if t.lab]
(LAB01,) = sources.choose_targets(LABS, ["lab01"])
CELLS = sources.read_source(LAB01).cells
GRADED = {
    c.metadata["nbgrader"]["grade_id"].removesuffix("-test"): c.source
    for c in CELLS
    if c.metadata.get("nbgrader", {}).get("grade")
}
Answer = Callable[..., Any]


def run_text(text: str, space: dict[str, Any]) -> None:
    exec(text, space)  # noqa: S102 - the course's own source


def solution_of(name: str) -> Answer:
    cells = (c for c in CELLS if c.metadata.get("nbgrader", {}).get("grade_id") == name)
    namespace: dict[str, Any] = {"np": np}
    run_text(next(cells).source, namespace)
    return next(v for k, v in namespace.items() if callable(v) and k == NAMES[name])


NAMES = {
    "epoch": "plan_epoch",
    "batches": "replica_batch_sizes",
    "parallelism": "choose_parallelism",
    "scaling": "measure_scaling",
}
CHECKS = {
    "epoch": lab01.EPOCH,
    "batches": lab01.BATCHES,
    "parallelism": lab01.PARALLELISM,
    "scaling": lab01.SCALING,
}


def run_visible(name: str, answer: Answer) -> None:
    CHECKS[name].verify([answer(*example) for example in CHECKS[name].examples])


def run_hidden(name: str, answer: Answer, seed: int = 2026) -> None:
    """Run a graded cell as a judge does: inputs, the got_ line, then the hidden tests."""
    source = GRADED[name]
    space: dict[str, Any] = {"np": np, "SEED": seed, NAMES[name]: answer}
    run_text(regions.region_text(source, "INPUTS"), space)
    got_line = next(line for line in source.split("\n") if line.startswith("got_"))
    run_text(got_line, space)
    judge = {k: v for k, v in space.items() if k.startswith("got_")}
    judge |= {"np": np, "SEED": seed}
    run_text(regions.region_text(source, "INPUTS"), judge)
    run_text(regions.region_text(source, "HIDDEN TESTS"), judge)


def split(count: int, parts: int) -> list[int]:
    return [count // parts + (i < count % parts) for i in range(parts)]


def rest_to_last(count: int, parts: int) -> list[int]:
    return [count // parts] * (parts - 1) + [count // parts + count % parts]


def choose(bytes_each=16, activations=True, memory=True, late=("data", "both")) -> Answer:
    def answer(parameters, activation_gib, device_gib, copy_hours, allowed_hours):
        need = bytes_each * parameters / 2**30 + activations * activation_gib
        if need <= device_gib or not memory:
            return "one device" if copy_hours <= allowed_hours else late[0]
        return "model" if copy_hours <= allowed_hours else late[1]

    return answer


def scale(power=1, flip=1, first=False, divide=True, factor=1, form=list) -> Answer:
    def answer(replicas, step_seconds):
        k = 0 if first else replicas.index(1)
        pairs = list(zip(replicas, step_seconds, strict=True))
        ups = [(n / replicas[k]) ** power * (step_seconds[k] / t) ** flip for n, t in pairs]
        return form([ups, [factor * u / n if divide else u for u, n in zip(ups, replicas)]])

    return answer


WRONG: list[tuple[str, Answer, str]] = [
    ("epoch", lambda n, b: (n // b, b), "smaller step"),
    ("epoch", lambda n, b: (n // b, n % b or b), "rounded up"),
    ("epoch", lambda n, b: (math.ceil(n / b), n % b), "full one"),
    ("epoch", lambda n, b: (n // b + 1, n % b), "one step too many"),
    ("epoch", lambda n, b: (math.ceil(n / b), b), "not a full batch"),
    ("batches", lambda n, w, r: split(n, r), "of all workers, not of one"),
    ("batches", lambda n, w, r: split(n, w), "per-worker batches"),
    ("batches", lambda n, w, r: [n // (w * r)] * (w * r), "rounding down"),
    ("batches", lambda n, w, r: [math.ceil(n / (w * r))] * (w * r), "rounding up"),
    ("batches", lambda n, w, r: rest_to_last(n, w * r), "spread"),
    ("batches", lambda n, w, r: [s for p in split(n, w) for s in split(p, r)], "by worker"),
    ("parallelism", choose(bytes_each=4), "4 bytes are the weight alone"),
    ("parallelism", choose(activations=False), "activations need room"),
    ("parallelism", choose(memory=False), "memory comes first"),
    ("parallelism", choose(late=("one device", "model")), "wants more replicas"),
    ("parallelism", choose(late=("model", "model")), "is not split"),
    ("scaling", scale(power=0), "n times as many images"),
    ("scaling", scale(flip=-1), "upside down"),
    ("scaling", scale(first=True), "wherever it stands"),
    ("scaling", scale(divide=False), "divided by the number of replicas"),
    ("scaling", scale(factor=100), "not a percentage"),
]  # fmt: skip
RIGHT: list[tuple[str, Answer]] = [
    ("epoch", lambda n, b: (math.ceil(n / b), n - b * (math.ceil(n / b) - 1))),
    ("epoch", lambda n, b: np.array([-(-n // b), n % b or b], dtype=np.int64)),
    ("epoch", lambda n, b: [float(len(range(0, n, b))), (n - 1) % b + 1.0]),
    ("epoch", lambda n, b: (np.int64(-(-n // b)), np.int64(n % b or b))),
    ("batches", lambda n, w, r: tuple(map(len, np.array_split(np.zeros(n), w * r)))),
    ("batches", lambda n, w, r: np.bincount(np.arange(n) % (w * r), minlength=w * r)),
    ("batches", lambda n, w, r: [float(s) for s in split(n, w * r)]),
    ("parallelism", choose()),
    ("parallelism", lambda *case: choose()(*case).title() + " "),
    ("parallelism", lambda *case: np.str_(choose()(*case))),
    ("scaling", scale()),
    ("scaling", scale(form=np.array)),
    ("scaling", scale(form=lambda a: tuple(map(tuple, a)))),
    ("scaling", scale(form=lambda a: [[round(x, 3) for x in row] for row in a])),
]
NONSENSE = [None, "?", 7, [], {}, [[1], [2, 3]], float("nan"), np.zeros((2, 2, 2))]


def label(case: Any) -> str:
    return case if isinstance(case, str) and len(case) < 40 else ""


@pytest.mark.parametrize(("name", "answer", "said"), WRONG, ids=label)
def test_wrong_answer_is_refused_by_its_own_message(name: str, answer: Answer, said: str) -> None:
    others = {text for n, _, text in WRONG if n == name} - {said}
    for run in (run_visible, run_hidden):
        with pytest.raises(AssertionError) as caught:
            run(name, answer)
        message = str(caught.value)
        assert NAMES[name] in message
        assert "should give" in message
        reason = message.split("should give")[1]
        assert said in reason
        assert not [text for text in others if len(text) > 3 and text in reason]


@pytest.mark.parametrize("seed", [0, 1, 7, 12345])
def test_wrong_answers_are_refused_and_named_for_other_seeds(seed: int) -> None:
    for name, answer, said in WRONG:
        with pytest.raises(AssertionError, match=said):
            run_hidden(name, answer, seed)


@pytest.mark.parametrize(("name", "answer"), RIGHT, ids=label)
def test_right_answer_is_accepted_in_any_style(name: str, answer: Answer) -> None:
    run_visible(name, answer)
    for seed in (0, 1, 7, 2026):
        run_hidden(name, answer, seed)


@pytest.mark.parametrize("name", NAMES)
def test_nonsense_is_refused_in_words(name: str) -> None:
    for nonsense in NONSENSE:
        for run in (run_visible, run_hidden):
            with pytest.raises(AssertionError, match="should give"):
                run(name, lambda *case, nonsense=nonsense: nonsense)


@pytest.mark.parametrize("name", NAMES)
def test_a_remembered_answer_fails_with_another_seed(name: str) -> None:
    remembered: dict[str, Any] = {}
    solution = solution_of(name)
    run_hidden(name, lambda *case: remembered.setdefault(str(case), solution(*case)))
    first = list(remembered.values())
    with pytest.raises(AssertionError, match="should give"):
        run_hidden(name, lambda *case: remembered.get(str(case), first[0]), seed=7)


def test_each_exercise_has_enough_wrong_and_right_answers() -> None:
    for name in NAMES:
        assert sum(n == name for n, _, _ in WRONG) >= 3
        assert sum(n == name for n, _ in RIGHT) >= 3
        assert check_graded_cell(GRADED[name]) == []


def test_check_says_the_number_given_and_the_number_wanted() -> None:
    with pytest.raises(AssertionError) as caught:
        lab01.check_epoch([(np.int64(2), 2), (2, 32), (0, 5)])
    assert str(caught.value).startswith("plan_epoch(66, 32) gave [2, 2], should give [3, 2]: steps")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((None, 4.0, "x"), "no guess written down: measured x4.0"),
        ((2, 4.0, "x"), "you said 2, measured x4.0"),
        (("  ", 3), "no guess written down: measured 3"),
        (("ring", "tree"), "you said ring, measured tree"),
        ((1, np.float32(0.125), "%"), "you said 1, measured 0.125%"),
        ((900, 12345.6, "images/s"), "you said 900, measured 12,346 images/s"),
    ],
)
def test_show_guess_prints_one_stable_line(arguments: tuple, said: str, capsys) -> None:
    show_guess(*arguments)
    assert capsys.readouterr().out == said + "\n"


@pytest.mark.parametrize("target", LABS, ids=lambda t: t.slug)
def test_committed_lab_and_solution_are_what_the_source_generates(target: sources.Target) -> None:
    assert find_stale(target) == []


@pytest.mark.parametrize("target", LABS, ids=lambda t: t.slug)
def test_lab_gives_nothing_away(target: sources.Target) -> None:
    lab = target.lab.read_text(encoding="utf-8")
    shown = "\n".join("".join(c["source"]) for c in json.loads(lab)["cells"])
    assert "HIDDEN TESTS" not in shown
    assert "SOLUTION" not in shown
    for cell in sources.read_source(target).cells:
        for name in ("SOLUTION", "HIDDEN TESTS") if cell.cell_type == "code" else ():
            secret = regions.region_text(cell.source, name).split("\n")
            lines = [line.strip() for line in secret if len(line.strip()) > 12]
            assert not [line for line in lines if line in shown]


@pytest.fixture(scope="module")
def validated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What stock `nbgrader validate` says of copies of lab 01 and of its solution."""
    folder = tmp_path_factory.mktemp("nbgrader")
    command = Path(sys.executable).parent / "nbgrader"
    said = {}
    for kind, path in (("lab", LAB01.lab), ("solution", LAB01.notebook)):
        copy = Path(shutil.copy(path, folder / f"{kind}.ipynb"))
        done = subprocess.run(
            [command, "validate", copy.name],
            cwd=folder, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        said[kind] = done.stdout + done.stderr
    return said


def test_stock_nbgrader_fails_the_stub_and_passes_the_solution(validated: dict[str, str]) -> None:
    assert "VALIDATION FAILED ON 4 CELL(S)" in validated["lab"]
    assert "NotImplementedError" in validated["lab"]
    assert "Success! Your notebook passes all the tests." in validated["solution"]


def test_stock_nbgrader_reads_the_metadata() -> None:
    validators = pytest.importorskip("nbgrader.nbgraderformat.v3")
    for path in (LAB01.lab, LAB01.notebook):
        validators.MetadataValidatorV3().validate_nb(nbformat.read(path, as_version=4))
