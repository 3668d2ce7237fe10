"""*Your turn* in the lessons: every answer is correct, every mistake is named, nothing stops."""

import ast
import importlib
import json
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
from lab_runner import LABS, get_lab

from distlab import progress
from distlab.exercises.exercise import Exercise, call, list_exercises
from distlab.home.course import read_course
from distlab.home.page import make_page
from distlab.turns.turn import DOTS_LEFT, EMPTY, NO_RETURN, Turn, evaluate

ROOT = Path(__file__).resolve().parents[2]
LAB_NAMES = [target.slug.split("-")[0] for target in LABS]
FILES = sorted((ROOT / "distlab/turns").glob("lesson[0-9][0-9].py"))


def list_turns() -> list[tuple[str, str, Turn]]:
    modules = {f.stem: importlib.import_module(f"distlab.turns.{f.stem}") for f in FILES}
    return [
        (lesson, name, turn)
        for lesson, module in modules.items()
        for name, turn in vars(module).items()
        if isinstance(turn, Turn)
    ]


TURNS = list_turns()
each_turn = pytest.mark.parametrize(
    ("lesson", "constant", "turn"), TURNS, ids=[f"{lesson}-{name}" for lesson, name, _ in TURNS]
)


@pytest.fixture
def said(monkeypatch):
    """What `take` shows: a list of (plain text, HTML)."""
    shown = []

    def display(bundle, raw):
        shown.append((bundle["text/plain"], bundle["text/html"]))

    monkeypatch.setattr("IPython.display.display", display)
    return shown


@each_turn
def test_our_answer_is_correct_and_each_mistake_is_named(said, lesson, constant, turn):
    assert turn.lesson == lesson[-2:] and len(turn.mistakes) >= 2
    for code, words in turn.mistakes.items():
        turn.take(evaluate(code))
        told = said[-1][0].removesuffix(" We continue with ours.")  # what would stop the next cell
        assert told == f"Not yet. {words}", code
    turn.take(evaluate(turn.answer))
    assert said[-1][0] == f"Correct. {turn.right}"
    turn.take(...)
    assert said[-1][0] == EMPTY and "<details>" in said[-1][1]
    assert len(textwrap.dedent(turn.answer).strip().split("\n")) <= 7


OTHER_RIGHT_ANSWERS = [
    ("lesson01", "THIRD_CUT", "lambda p: p[0] + p[1] + p[2] + p[3]"),
    ("lesson01", "THIRD_CUT", "def f(p):\n    p[0] += p[1] + p[2] + p[3]\n    return p[0]"),
    ("lesson01", "THIRD_CUT", "lambda p: tf.add_n(p)"),
    ("lesson02", "TOKENS", "tf.VariableAggregation.SUM"),
    ("lesson02", "TOKENS", "'sum'"),
    ("lesson04", "STEPS", "5"),
    ("lesson05", "PENALTY", "lambda p: tf.nn.scale_regularization_loss(p)"),
    ("lesson05", "PENALTY", "lambda p: 0.25 * p"),
    ("lesson09", "POLICY", "tf.data.experimental.AutoShardPolicy.AUTO"),
    ("lesson11", "MOVED", "2 * 1568 * (16 * 4 + 8) / 1024"),
    ("lesson11", "MOVED", "1568 * (2 * 16 * 4 + 4) / 1024"),
    ("lesson12", "CENTER", "lambda x: x - np.mean(x, axis=(1, 2), keepdims=True)"),
    ("lesson12", "CACHED", "lambda n: n.cache().shuffle(48, seed=3).batch(4).prefetch(1)"),
    ("lesson12", "CUT", "lambda n: (n.filter(lambda k: k < 100), n.skip(100).shuffle(9))"),
    ("lesson13", "BATCH", "lambda w, r: np.floor(w / r) * r"),
    ("lesson13", "PART", "lambda d, r, w, k: d.shard(w, k).interleave(r).shuffle(64)"),
    ("lesson13", "FAULTS", "lambda t: [list(t).count(0), len(t[t > 1])]"),
    ("lesson14", "BUCKET", "lambda w: np.ceil(w / 4) * 4"),
    ("lesson14", "STEPS", "lambda s, h: np.ceil(0.9 * h / (1 - 0.9) / s)"),
    (
        "lesson14",
        "MEAN_ABOVE",
        "def f(v, m):\n    k = tf.cast(v > m, v.dtype)\n    "
        "return tf.reduce_sum(k * v) / tf.reduce_sum(k)",
    ),
    ("lesson15", "COLUMNS", "['UNSHARDED'.lower(), 'model']"),
    ("lesson16", "KEPT", "lambda s, p, m: m if m < p - s else p - s"),
    ("lesson17", "NOISE", "lambda g, n: n * g.var(0, ddof=1).sum() / (g.mean(0) ** 2).sum()"),
    (
        "lesson17",
        "NOISE",
        "def f(g, n):\n    m = g.mean(0)\n    return n * np.trace(np.cov(g.T)) / (m @ m)",
    ),
    ("lesson17", "OWN_RATE", "lambda w, g, t: t * np.sqrt(np.sum(w**2) / np.sum(g**2))"),
    (
        "lesson18",
        "BUILD",
        "def f(p):\n    k = keras.layers\n    return keras.Sequential([keras.Input((4,)), "
        "k.Dense(8, dtype=p), k.ReLU(dtype=p), k.Dense(3, dtype='float32')])",
    ),
    ("lesson18", "ERROR", "lambda a, b: np.sqrt(((a - b) ** 2).sum() / (b**2).sum())"),
    ("lesson19", "APART", "lambda n, w, s: np.ceil(n / w) * s"),
    ("lesson20", "INTENSITY", "lambda n, b: n * n * (2 * n - 1) / (3 * n * n * b)"),
    ("lesson21", "AGGREGATION", "tf.VariableAggregation.SUM"),
    ("lesson21", "AGGREGATION", "'sum'"),
    ("lesson21", "HOURS", "lambda r, d, a, t: [-(-r // d) * a, t * r]"),
    ("lesson22", "AVERAGE", "lambda e, n: tf.reduce_sum(e) / (n * 64 * 64)"),
    (
        "lesson22",
        "AVERAGE",
        "lambda e, n: tf.nn.compute_average_loss(tf.reduce_mean(e, (1, 2)), global_batch_size=n)",
    ),
    (
        "lesson22",
        "FIND_ROW",
        "def f(n, r):\n    s = [k['first_row'] for k in n]\n    "
        "p = np.searchsorted(s, r, side='right') - 1\n    return [p, r - s[p]]",
    ),
    ("lesson23", "KEEP", "lambda c, e, n: np.flatnonzero(c == e)[:n]"),
    ("lesson02", "MEANS", "lambda m, c: np.nansum(np.multiply(m, c)) / sum(c)"),
    ("lesson03", "FROM_FILES", "[min(32, max(0, 72 - 32 * r)) for r in range(4)]"),
    ("lesson08", "INDEX", "lambda w, h: [a.partition(':')[0] == h for a in w].index(1)"),
    ("lesson10", "PLACE", "divmod"),
    ("lesson24", "LOGITS", "['model', None]"),
    ("lesson03", "WARM_UP", "lambda e: np.interp(e, [0, 3], [0.25e-3, 1e-3])"),
    (
        "lesson15",
        "ZERO",
        "def f(s, r):\n    p = [12, 2, 2]\n    return sum(p[:s]) / r + sum(p[s:])",
    ),
    ("lesson19", "PART", "lambda m, i, w: [one for k, one in enumerate(m) if k % w == i]"),
    (
        "lesson21",
        "MAKE",
        "def f(s):\n    with s.scope():\n        m = keras.Sequential([keras.layers.Dense(1)])\n"
        "        o = keras.optimizers.SGD()\n    m.compile(o, 'mse')\n    return m",
    ),
    (
        "lesson23",
        "JOIN",
        "def f(a, x, b, y):\n    t = np.maximum(a, b)\n"
        "    return [t, np.exp(np.logaddexp(a + np.log(x), b + np.log(y)) - t)]",
    ),
]
OTHER_WRONG_ANSWERS = [
    ("lesson05", "DIVISOR", "'64'", "this gives '64'"),
    ("lesson15", "CROSSING", "2 * 32 * 10 * 4", "at 8 bytes (float64) each time"),
    (
        "lesson21",
        "MAKE",
        "def f(s):\n    with s.scope():\n        m = keras.Sequential([keras.layers.Dense(2)])\n"
        "        m.compile('sgd', 'mse')\n    return m",
        "outputs: 2",
    ),
    ("lesson01", "THIRD_CUT", "lambda p: p[0] + p[1]", "Which part of it"),
    ("lesson02", "TOKENS", "tf.VariableAggregation.MEAN", "a quarter of the tokens"),
    ("lesson02", "TOKENS", "'SUM, ON READ'", "every read in every step"),
    ("lesson04", "SAVE", "lambda e, n: e % 2 == 0 or e == 5", "Of five epochs"),
    ("lesson04", "STEPS", "10", "the save at 25 is missed"),
    ("lesson04", "SAVE", "def f(e, n):\n    if e % 2 == 0 or e == n:\n        return 1", NO_RETURN),
    ("lesson05", "PENALTY", "lambda p: tf.reduce_sum(p)", "four times too fast"),
    ("lesson09", "CHIEF", "def f(j, i, js):\n    if j == 'chief':\n        return True", NO_RETURN),
    ("lesson09", "CHIEF", "lambda j, i, js: i == 0 and j == js[0]", "Not yet"),
    ("lesson09", "POLICY", "tf.data.experimental.AutoShardPolicy.DATA", "decodes all the images"),
    ("lesson11", "MOVED", "2 * 1568 * 16 * 8 / 1024", "Rows × numbers in a row"),
    ("lesson12", "CENTER", "lambda x: x - x.mean(axis=(1, 2))", "has no attribute 'mean'"),
    ("lesson12", "CACHED", "lambda n: n.batch(4).cache()", "Nothing is shuffled"),
    ("lesson12", "CUT", "lambda n: (n.take(100), n.skip(200).shuffle(9))", "Cut first"),
    ("lesson13", "BATCH", "lambda w, r: w % r", "Round the share"),
    (
        "lesson13",
        "PART",
        "lambda d, r, w, k: d.interleave(r).shuffle(64).shard(w, k)",
        "the mistake above",
    ),
    ("lesson13", "FAULTS", "lambda t: ((t == 0).mean(), (t > 1).sum())", "Count the marks"),
    ("lesson14", "BUCKET", "lambda w: 32", "belong into"),
    ("lesson14", "STEPS", "lambda s, h: 9 * h // s", "round up"),
    ("lesson14", "MEAN_ABOVE", "lambda v, m: tf.reduce_mean(v[v > m])", "isn't fixed"),
    ("lesson15", "COLUMNS", "['unsharded', 'unsharded']", "Two words"),
    ("lesson16", "ORDER", "[('F', 0), ('F', 1), ('BW', 1), ('BW', 0)]", "still waits"),
    ("lesson16", "ORDER", "[('F', 1), ('BW', 1), ('F', 0), ('BW', 0)]", "still waits"),
    ("lesson16", "ORDER", "[('BW', 1), ('F', 1), ('F', 0), ('BW', 0)]", "forward first"),
    ("lesson12", "CACHED", "lambda n: n.repeat().cache().batch(4)", "doesn't end"),
    ("lesson12", "CUT", "lambda n: (n.take(100).repeat(), n.skip(100))", "doesn't end"),
    ("lesson17", "NOISE", "lambda g, n: n * np.trace(np.cov(g)) / (g.mean(0) ** 2).sum()", "Three"),
    ("lesson17", "NOISE", "lambda g, n: n * g.std(0).sum() / (g.mean(0) ** 2).sum()", "Three"),
    ("lesson17", "OWN_RATE", "lambda w, g, t: t * np.sqrt(w @ w) / np.sqrt(g @ g)", "ours"),
    ("lesson18", "ERROR", "lambda a, b: np.sqrt((a - b) @ (a - b) / (b @ b))", "ours"),
    (
        "lesson18",
        "BUILD",
        "def f(p):\n    k = keras.layers\n    return keras.Sequential([keras.Input((4,)), "
        "k.Dense(8, dtype=p), k.ReLU(dtype=p), k.Dense(3, dtype=p)])",
        "The last layer takes",
    ),
    ("lesson20", "INTENSITY", "lambda n, b: 2 * n / 3", "has `bytes_each`"),
    ("lesson21", "AGGREGATION", "'avg'", "One of"),
    ("lesson21", "HOURS", "lambda r, d, a, t: (r // d * a, r * t)", "Two numbers"),
    ("lesson21", "AGGREGATION", "tf.VariableAggregation.MEAN", "one replica's share"),
    ("lesson22", "AVERAGE", "lambda e, n: e.mean() * len(e) / n", "no attribute 'mean'"),
    ("lesson22", "FIND_ROW", "lambda n, r: (r // 4, r % 4)", "How far into it"),
    ("lesson23", "KEEP", "lambda c, e, n: np.flatnonzero(c == e)[1:n]", "cut the list"),
]


def take(lesson: str, constant: str, code: str) -> tuple[Any, Any]:
    """Check what `code` makes; return what the next cell gets, and our own answer."""
    (turn,) = (turn for *key, turn in TURNS if key == [lesson, constant])
    return turn.take(evaluate(code)), evaluate(turn.answer)


@pytest.mark.parametrize(("lesson", "constant", "code"), OTHER_RIGHT_ANSWERS)
def test_a_right_answer_is_accepted_however_it_is_written(said, lesson, constant, code):
    taken, ours = take(lesson, constant, code)
    assert said[-1][0].startswith("Correct. ")
    assert isinstance(taken, str) or not isinstance(ours, str), "the next cell can use it"


@pytest.mark.parametrize(("lesson", "constant", "code", "words"), OTHER_WRONG_ANSWERS)
def test_a_wrong_answer_is_told_why(said, lesson, constant, code, words):
    take(lesson, constant, code)
    assert said[-1][0].startswith(("Not yet", "Your code raised")) and words in said[-1][0]


@each_turn
def test_a_check_that_is_run_twice_says_the_same(said, lesson, constant, turn):
    turn.take(turn.take(...))
    assert [text for text, _ in said] == [EMPTY, EMPTY]
    turn.take(turn.take(None))
    assert said[2][0] == said[3][0] == f"Not yet: {NO_RETURN}. We continue with ours."


@each_turn
def test_the_lesson_asks_with_a_stub_and_checks_at_once(lesson, constant, turn):
    path = next((ROOT / "notebooks").glob(f"{turn.lesson}-*.ipynb"))
    cells = json.loads(path.read_text())["cells"]
    texts = ["".join(cell["source"]) for cell in cells]
    check = next(k for k, text in enumerate(texts) if f"turns.{constant}.take(" in text)
    stub = max(k for k in range(check) if cells[k]["cell_type"] == "code")
    assert "..." in texts[stub], "the cell before the check has the stub"
    for name in re.findall(r"(?m)^def (\w+)", textwrap.dedent(turn.answer))[-1:]:
        assert f"def {name}(" in texts[stub], "the folded answer has the stub's name"
    asked = "\n".join(texts[stub - 1 : stub])
    assert "Your turn" in asked, "the cell above the stub says whose turn it is"
    if re.fullmatch(r"[\w.'\"]+", turn.answer.strip()):
        assert not re.search(rf"(?<![\w.]){re.escape(turn.answer.strip())}(?![\w.])", asked)


@each_turn
def test_what_a_learner_writes_keeps_its_name(lesson, constant, turn):
    """Else a check that is run again, later in the lesson, gets something else to check."""
    path = next((ROOT / "notebooks").glob(f"{turn.lesson}-*.ipynb"))
    cells = json.loads(path.read_text())["cells"]
    codes = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    check, name = next(
        (k, found[1])
        for k, code in enumerate(codes)
        if (found := re.search(rf"turns\.{constant}\.take\((\w+)\)", code))
    )
    for code in codes[check:]:
        body = ast.parse(re.sub(r"(?m)^[%!].*", "", code)).body
        others = [node for node in body if f"turns.{constant}.take(" not in ast.unparse(node)]
        assert name not in [bound for node in others for bound in list_bound(node)], code


def list_bound(tree: ast.AST) -> list[str]:
    """Return the names that a statement of a cell binds in the notebook."""
    if isinstance(tree, ast.FunctionDef | ast.ClassDef):
        return [tree.name]
    if isinstance(tree, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        return []
    own = [tree.id] if isinstance(tree, ast.Name) and isinstance(tree.ctx, ast.Store) else []
    return own + [name for child in ast.iter_child_nodes(tree) for name in list_bound(child)]


@each_turn
def test_no_line_of_an_answer_is_a_line_of_a_labs_solution(lesson, constant, turn):
    """A lesson's answer is the case before a lab's, not a piece of one to paste."""
    solved = "\n".join(path.read_text() for path in (ROOT / "solutions/src").glob("lab*.py"))
    body = ast.parse(textwrap.dedent(turn.answer).strip()).body
    lines = {ast.unparse(node) for node in ast.walk(ast.Module(body, [])) if is_work(node)}
    assert not [line for line in lines if line in solved]


def is_work(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign | ast.Return | ast.AugAssign) and len(ast.unparse(node)) > 30


def lay_beside() -> dict[tuple[str, str], list[Exercise]]:
    """Return the table: each turn, and the exercises whose function takes as many arguments."""
    labs = [importlib.import_module(f"distlab.labs.{lab}.exercise") for lab in LAB_NAMES]
    exercises = [e for lab in labs for e in list_exercises(lab).values() if e.run is call]
    return {
        (lesson, constant): [e for e in exercises if len(e.examples[0]) == len(turn.cases[0])]
        for lesson, constant, turn in TURNS
        if turn.cases
    }


def test_no_folded_answer_passes_a_labs_judge():
    """The cases of one exercise are no other's; `pytest -s` prints the table."""
    turns = {(lesson, constant): turn for lesson, constant, turn in TURNS}
    for key, exercises in lay_beside().items():
        print(*key, "beside", *(f"{e.lab}:{e.name}" for e in exercises))
        for exercise in exercises:
            outcome = get_lab(exercise.lab).try_answer(
                exercise.name, answer_as(exercise.function, turns[key]), seed=2027
            )
            assert outcome.judged is not None, f"{key} passes {exercise.lab}:{exercise.name}"


def answer_as(function: str, turn: Turn) -> str:
    """Return the code of a turn's answer under the name that an exercise asks for."""
    code = textwrap.dedent(turn.answer).strip()
    own = code.rpartition("def ")[2].partition("(")[0]
    return f"import numpy as np\n{code}\n{function} = {own}\n"


SHARE = Turn(
    lesson="05",
    name="share",
    answer="def share(batch_size, replicas):\n    return batch_size // replicas",
    right="Each replica gets an equal part.",
    mistakes={"def share(batch_size, replicas):\n    return batch_size": "That's all of it."},
    otherwise="How many examples does one replica hold?",
    cases=[(8, 4), (64, 2)],
)


def test_whatever_is_written_is_answered_and_a_notebook_never_stops(said):
    ours = SHARE.take(lambda batch_size, replicas: ...)
    assert said[-1][0] == EMPTY and ours(8, 4) == 2

    def guess(batch_size, replicas):
        return 3

    assert SHARE.take(guess) is guess, "the next cell shows the learner's own result"
    assert said[-1][0] == "Not yet: this gives 3. How many examples does one replica hold?"
    assert SHARE.take(lambda batch_size: 1)(8, 4) == 2
    assert said[-1][0].startswith("Your code raised TypeError: ") and "\n" not in said[-1][0]
    assert SHARE.take("8 // 4")(8, 4) == 2 and "not callable" in said[-1][0]
    assert SHARE.take(lambda batch_size, replicas: "two")(8, 4) == 2
    assert SHARE.take(lambda batch_size, replicas: [2, 2, 2, 2])(8, 4) == 2
    assert said[-1][0].endswith("How many examples does one replica hold? We continue with ours.")
    assert SHARE.take(lambda batch_size, replicas: print(2))(8, 4) == 2
    assert said[-1][0] == f"Not yet: {NO_RETURN}. We continue with ours."
    assert SHARE.take(lambda batch_size, replicas: 2 if batch_size == 8 else ...)(8, 4) == 2
    assert said[-1][0] == f"Not yet: {DOTS_LEFT}. We continue with ours."
    SHARE.take(lambda batch_size, replicas: 2)
    assert said[-1][0].startswith("Not yet: this gives 2. "), "the one that is wrong is shown"
    text = Turn("05", "word", "'FILE'", "Yes.", {"'OFF'": "No."}, "Look again.").take("<b>")
    assert text == "<b>" and "<b>" not in said[-1][1]


def test_what_was_tried_counts_on_the_course_map(said, tmp_path, monkeypatch):
    (tmp_path / "README.md").write_text("# A course\n")
    (tmp_path / "labs").mkdir()
    (tmp_path / "notebooks").mkdir()
    source = ROOT / "notebooks" / "05-loss-scaling.ipynb"
    book = json.loads(source.read_text())
    cell = {"cell_type": "code", "id": "a", "metadata": {}, "outputs": [], "execution_count": None}
    book["cells"].append({**cell, "source": ["share = turns.SHARE.take(share)"]})
    (tmp_path / "notebooks" / source.name).write_text(json.dumps(book))
    (before,) = read_course(tmp_path)
    assert before.head.turns >= 1 and before.tried == 0
    monkeypatch.chdir(tmp_path / "notebooks")
    SHARE.take(...)
    assert progress.read(tmp_path) == {}
    SHARE.take(lambda batch_size, replicas: 1)
    assert list(progress.read(tmp_path)["lesson05"]) == ["share"]
    assert f"1 of {before.head.turns} tried" in make_page(tmp_path)
