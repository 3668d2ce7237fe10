"""`distlab modernize` on programs in the manner of 2017 to 2024, on notebooks and on bad input.

A comment "#! NAME …" in a program of tests/programs names the entries of its line. Six of the
programs run after `--write`, with the losses of the program in examples/ that does the same.
"""

import json
import re
import subprocess
from pathlib import Path

import nbformat
import pytest
import warm_start
from child_programs import start_python
from test_examples import LOSSES

from distlab.cli import main
from distlab.modernize import pages
from distlab.modernize.reading import read_program
from distlab.modernize.rewriting import rewrite
from distlab.modernize.sources import list_modules, read_file

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted((ROOT / "tests/programs").glob("*.py"))


def read_expected(path):
    lines = enumerate(path.read_text().split("\n"), 1)
    return {
        (number, name)
        for number, line in lines
        if "#! " in line
        for name in line.split("#! ")[1].split()
    }


def modernize(capsys, *words):
    status = main(["modernize", *map(str, words)])
    return (status, *capsys.readouterr())


# --- what is said ---------------------------------------------------------------------------


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_of_its_time_is_read_as_it_should_be(path):
    reading = read_file(path, list_modules([path]))
    assert {(found.line, found.entry.name) for found in reading.found} == read_expected(path)


def test_there_are_twelve_programs_and_todays_need_nothing(capsys):
    assert len(PROGRAMS) == 12
    for folder in ("examples", "utils"):
        status, output, _ = modernize(capsys, ROOT / folder)
        *found, last = output.splitlines()
        assert all("isn't installed here" in line for line in found), "an extra's package at most"
        assert status == bool(found) and (found or "nothing to change was found" in last)


NOTHING = [
    "import torch\noptimizer = torch.optim.Adam([])\nprint(optimizer.lr)\nmodel.fit_generator(1)",
    "import tf_keras as keras\nmetric = keras.metrics.Mean()\nmetric.reset_states()",
    "import os\nos.environ['TF_USE_LEGACY_KERAS'] = '1'\nimport tensorflow as tf\n"
    "metric = tf.keras.metrics.Mean()\nmetric.reset_states()\ntf.keras.optimizers.legacy.SGD()",
    "import tensorflow.compat.v1 as tf\ntf.disable_v2_behavior()\nsess = tf.Session()\n"
    "sess.run(tf.global_variables_initializer())",
    "import tensorflow as tf\ntry:\n    run = tf.contrib.x\nexcept AttributeError:\n    run = None",
    "import tensorflow as tf\nif tf.__version__ < '2':\n    tf.set_random_seed(1)",
    "import tensorflow as tf\nclass Reader:\n    def reset_states(self):\n        pass\n"
    "reader = Reader()\nreader.reset_states()",
    "import tensorflow as tf\ncounter = make()\ncounter.lr = 3\nprint(counter.output_shapes)",
    "import tensorflow as tf\nstrategy = tf.distribute.MirroredStrategy()\n"
    "data = tf.data.Dataset.from_tensor_slices([1]).shuffle(3)",
    "import tensorflow as tf\ndef make():\n    model = tf.keras.Sequential([])\n"
    "    model.compile('sgd', 'mse')\n    return model\n"
    "with tf.distribute.MirroredStrategy().scope():\n    model = make()",
    "import tensorflow as tf\nfrom tensorflow.python.framework import ops\n"
    "import tensorflow_datasets as tfds",
    "import tensorflow as tf\npath = input()\nmodel = tf.keras.Sequential([])\nmodel.save(path)",
]


@pytest.mark.parametrize("program", NOTHING)
def test_nothing_is_said_where_nothing_is_wrong_or_nothing_is_known(program):
    assert read_program(program) == []


def test_names_are_followed_through_imports_and_aliases():
    program = """\
import tensorflow as t
from tensorflow.keras import metrics as m, layers
from tensorflow.keras.optimizers import Adam as A
kl = t.keras.callbacks
class Net(t.keras.Model):
    def __init__(self):
        self.seen = m.Mean()
        self.rule = A(lr=0.1)
    def reset(self):
        self.seen.reset_states()
        return self.rule.lr, kl.experimental.BackupAndRestore("b")
net = Net()
net.predict_classes(t.log(1.0))
"""
    found = [(found.line, found.entry.name) for found in read_program(program)]
    assert found == [
        (8, "lr-argument"),
        (10, "reset-states"),
        (11, "optimizer-lr"),
        (11, "backup-experimental"),
        (13, "predict-classes"),
        (13, "gone-name"),
    ]
    changed, made = rewrite(program, read_program(program))
    assert len(made) == 5 and "t.math.log(1.0)" in changed
    assert "A(learning_rate=0.1)" in changed and "kl.BackupAndRestore" in changed


def test_imports_move_and_comments_stay():
    program = """\
from tensorflow.keras.layers.experimental.preprocessing import (  # of 2020
    Rescaling,
    RandomFlip as Flip,
)
from tensorflow.keras.utils import np_utils, plot_model
x = Rescaling( 1/255 )   # as it was
"""
    changed, _ = rewrite(program, read_program(program))
    assert changed.startswith(
        "from tensorflow.keras.layers import (  # of 2020\n    Rescaling, RandomFlip as Flip)\n"
        "from tensorflow.keras.utils import plot_model\n"
        "from tensorflow.keras import utils as np_utils\n"
    )
    assert "x = Rescaling( 1/255 )   # as it was" in changed


# --- the command ----------------------------------------------------------------------------


def test_the_command_lists_shows_and_makes_changes(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    old = (ROOT / "tests/programs/mirrored_loop_2019.py").read_text()
    Path("old.py").write_text(old)
    status, output, _ = modernize(capsys, "old.py")
    line = next(n for n, text in enumerate(old.split("\n"), 1) if "test_loss.reset_states" in text)
    assert status == 1 and f"old.py:{line}: stops: test_loss.reset_states. Renamed" in output
    assert "distlab run --keras legacy" in output.splitlines()[-1]
    data = json.loads(modernize(capsys, "--json", "old.py")[1])
    assert {f["entry"] for f in data["files"][0]["findings"]} == {
        n for _, n in read_expected(Path("old.py"))
    }

    status, patch, _ = modernize(capsys, "--diff", "old.py")
    Path("change.patch").write_text(patch)
    assert Path("old.py").read_text() == old
    Path("copy.py").write_text(old)
    subprocess.run(["patch", "-p1", "copy.py", "change.patch"], check=True, capture_output=True)
    status, output, _ = modernize(capsys, "--write", "old.py")
    assert Path("old.py").read_text() == Path("copy.py").read_text() != old
    assert Path("old.py.bak").read_text() == old and "The old file is old.py.bak" in output
    left = {found.entry.name for found in read_program(Path("old.py").read_text())}
    assert left == {"virtual-devices", "input-shape", "reduction-enum", "unbuilt-optimizer"}


def test_a_notebook_with_magics_is_read_and_written(tmp_path, capsys):
    cells = [
        "%tensorflow_version 1.x\n!pip install x\nimport tensorflow as tf\nout = !ls",
        "%%bash\necho tf.Session",
        "tf.log?\nprint(tf.random_normal([1]))  # stays",
        "%%time\nfor k in [1]:\n    %matplotlib inline\n    tf.log(1.0)",
        "this isn't Python",
    ]
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_markdown_cell("tf.Session"), *map(nbformat.v4.new_code_cell, cells)]
    )
    path = tmp_path / "old.ipynb"
    nbformat.write(notebook, path)
    status, output, _ = modernize(capsys, path)
    assert status == 1 and f"{path}:cell 1:1: stops: %tensorflow_version 1.x" in output
    assert f"{path}:cell 3:2: stops: tf.random_normal" in output and ":cell 4:4: " in output
    modernize(capsys, "--write", path)
    written = [c.source for c in nbformat.read(path, 4).cells if c.cell_type == "code"]
    assert written[:2] == cells[:2] and written[4] == cells[4]
    assert written[2] == "tf.log?\nprint(tf.random.normal([1]))  # stays"
    assert written[3] == cells[3].replace("tf.log(", "tf.math.log(")


BAD = [
    ("data.py", b"\x00\x01\xff", 2, "data.py: isn't a text file."),
    ("two.py", b"import tensorflow\nprint 'step'\n", 1, "two.py:2: stops: Python 2 syntax: print"),
    ("two.py", b"try:\n  pass\nexcept ValueError, e:\n  pass\n", 1, "Python 2 syntax"),
    ("text.py", b"Dear all,\nhow are you\n", 1, "text.py:1: stops: this isn't Python"),
    ("broken.ipynb", b"{", 2, "isn't a notebook that nbformat can read"),
    ("deep.py", b"x = " + b"(" * 5000 + b")" * 5000, 1, "deep.py"),
    ("latin.py", "# é\nimport tensorflow as tf\ntf.log(1)\n".encode("latin-1"), 2, "text file"),
    (
        "marked.py",
        b"# coding: latin-1\n# \xe9\nimport tensorflow as tf\ntf.log(1)\n",
        1,
        "tf.math.log",
    ),
    ("windows.py", b"import tensorflow as tf\r\ntf.log(1)\r\n", 1, "windows.py:2: stops: tf.log"),
    ("empty.py", b"", 0, "nothing to change"),
    (
        "path.py",
        b"import sys, tensorflow\nsys.path.append('x')\nimport left_pad\n",
        0,
        "changes sys.path, so missing modules aren't looked for",
    ),
    (
        "missing.py",
        b"import tensorflow, left_pad\n",
        1,
        "left_pad isn't installed here: pip install",
    ),
    ("nowhere.py", None, 2, "file or folder not found"),
]


@pytest.mark.parametrize("name, data, status, says", BAD)
def test_bad_input_gets_one_clear_line(name, data, status, says, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if data is not None:
        Path(name).write_bytes(data)
    ended, output, errors = modernize(capsys, name)
    assert ended == status and says in output + errors and "Traceback" not in output + errors
    if status == 2:
        assert len(errors.splitlines()) == 1


def test_written_files_keep_their_encoding_and_line_ends(tmp_path, capsys):
    path = tmp_path / "a.py"
    path.write_bytes(b"# coding: latin-1\r\n# \xe9\r\nimport tensorflow as tf\r\ntf.log(1)\r\n")
    modernize(capsys, "--write", path)
    assert path.read_bytes() == (
        b"# coding: latin-1\r\n# \xe9\r\nimport tensorflow as tf\r\ntf.math.log(1)\r\n"
    )


def test_progress_is_said_of_many_files(tmp_path, capsys):
    text = (ROOT / "tests/programs/parameter_server_2020.py").read_text()
    for number in range(2_001):
        folder = tmp_path / f"part{number // 500}"
        folder.mkdir(exist_ok=True)
        (folder / f"m{number}.py").write_text(text if number == 0 else "import os\nx = 1\n")
    status, output, errors = modernize(capsys, tmp_path)
    assert status == 1 and output.splitlines()[-1].startswith("2,001 files: ")
    assert errors == "distlab modernize: 2,000 of 2,001 files read\n"


def test_nothing_of_the_program_runs(tmp_path, capsys):
    path = tmp_path / "trap.py"
    path.write_text(f"import tensorflow\nopen({str(tmp_path / 'ran')!r}, 'w')\n")
    modernize(capsys, path)
    assert not (tmp_path / "ran").exists()


def test_the_pages_are_made_from_the_table():
    assert pages.PAGE.read_text(encoding="utf-8") == pages.write_page()
    source = pages.LESSON.read_text(encoding="utf-8")
    assert pages.put_table(source) == source and pages.write_old_names() in source


# --- run after --write ------------------------------------------------------------------------


BY_HAND = {  # what --write leaves to a person: at most three lines in a program
    "mirrored_loop_2019": [
        (
            '    test_loss = tf.keras.metrics.Mean(name="test_loss")',
            "    optimizer.build(model.trainable_variables)\n"
            '    test_loss = tf.keras.metrics.Mean(name="test_loss")',
        )
    ],
    "multi_worker_loop_2020": [
        ('"mwms_model" if is_chief else "aside"', '"m.keras" if is_chief else "a.keras"')
    ],
    "multi_worker_fit_2021": [
        ('"model" if task_id == 0 else "aside"', '"m.keras" if task_id == 0 else "a.keras"')
    ],
}
PAIRS = [  # an old program, how it's run after --write, and the example that does the same
    ("mirrored_loop_2019", [], "mirrored_custom_loop.py"),
    ("mirrored_fit_2018", [], "mirrored_fit.py"),
    ("checkpoint_loop_2019", [], "checkpoint_and_resume.py"),
    ("multi_worker_loop_2020", ["--workers", "2"], "multi_worker_custom_loop.py"),
    ("multi_worker_fit_2021", ["--workers", "2", "--keras", "legacy"], "multi_worker_fit.py"),
    ("parameter_server_2020", ["--workers", "1", "--ps", "1"], "parameter_server.py"),
]


@pytest.fixture
def folder(tmp_path, monkeypatch, data_file):
    """The present folder, whose programs start warm and read `data_file`."""
    monkeypatch.setattr(warm_start, "FOLDERS", (*warm_start.FOLDERS, tmp_path.resolve()))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.setenv("FASHION_MNIST", str(data_file))
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    return tmp_path


def start(*words):
    return start_python(*words, stderr=subprocess.STDOUT)


def read_output(process):
    output = process.communicate(timeout=250)[0]
    assert process.returncode == 0, output[-3000:]
    return output


def read_loss(output):
    found = re.findall(r'(\{"loss".*\})', output)
    assert found, output[-3000:]
    return json.loads(found[-1])["loss"]


def make_changed_copy(path, folder, capsys):
    """Copy a program, let the command change it, and then change by hand what it left."""
    copy = folder / path.name
    copy.write_text(path.read_text())
    modernize(capsys, "--write", copy)
    text = copy.read_text()
    for old, new in BY_HAND.get(path.stem, ()):
        assert text.count(old) == 1
        text = text.replace(old, new)
    copy.write_text(text)
    return copy


@pytest.mark.parametrize("name, options, example", PAIRS, ids=[p[0] for p in PAIRS])
def test_a_changed_program_has_the_losses_of_the_example(name, options, example, folder, capsys):
    """test_examples runs those of `LOSSES` as well, and compares with the same number."""
    copy = make_changed_copy(ROOT / f"tests/programs/{name}.py", folder, capsys)
    wanted = None if example in LOSSES else start(ROOT / "examples" / example)
    if options:
        assert main(["run", *options, copy.name]) == 0
        changed = capsys.readouterr().out
    else:
        changed = read_output(start(copy.name))
    expected = read_loss(read_output(wanted)) if wanted else LOSSES[example]
    loss = read_loss(changed)
    assert loss == pytest.approx(expected, abs=1e-3) and 0 < loss < 2


def test_a_session_program_of_2017_runs_after_two_lines(folder, capsys):
    """No example does the same. It imports TensorFlow 1's names, and its loss falls."""
    copy = make_changed_copy(ROOT / "tests/programs/sessions_2017.py", folder, capsys)
    assert "import tensorflow.compat.v1 as tf\ntf.disable_v2_behavior()\n" in copy.read_text()
    output = read_output(start(copy.name))
    losses = [float(value) for value in re.findall(r"loss (\S+)", output)]
    assert len(losses) >= 20 and losses[-1] < losses[0] / 10, output
