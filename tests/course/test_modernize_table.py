"""The table of `distlab modernize`, entry by entry, on the installed TensorFlow and Keras.

Every old form does what its entry says, every new form runs, the reader finds the one and not
the other, and the mechanical change makes the one of the other.
"""

import contextlib
import json
import re
import subprocess
import textwrap

import pytest
from child_programs import run_child, start_python

from distlab.modernize import installed
from distlab.modernize.reading import read_program
from distlab.modernize.rewriting import rewrite
from distlab.modernize.table import STOPS, STYLE, find_entry, read_table
from utils.tf_config import diagnose
from utils.tf_config.build import pick_free_ports

PRELUDE = textwrap.dedent("""\
    import json, os
    import numpy as np
    import tensorflow as tf
    from tensorflow import keras
    strategy = tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"], cross_device_ops=tf.distribute.ReductionToOneDevice())
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    optimizer = keras.optimizers.SGD(0.1)
    metric = keras.metrics.Mean()
    dataset = tf.data.Dataset.range(8)
    x, y = np.ones((8, 4), "float32"), np.ones((8, 1), "float32")
    """)
TWO_REPLICAS = textwrap.dedent("""\
    cpu = tf.config.list_physical_devices("CPU")[0]
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, two)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    x, y = np.ones((8, 4), "float32"), np.ones((8, 1), "float32")
    """)
ELSEWHERE = {  # entries of several processes: the test that makes the old form fail
    "keras-fit-multi-worker": "tests/library/test_old_programs.py, test_fit_across_workers",
    "keras-fit-parameter-server": "tests/library/test_cluster_diagnose.py, the mistake of its name",
    "tensorflow-version-magic": "tests/course/test_modernize.py, test_a_notebook",
}
ENTRIES = [entry for entry in read_table() if entry.old]
HERE = [entry for entry in ENTRIES if not entry.alone]
NAMES = [entry.name for entry in HERE]


def write_program(form):
    """Return a program with this form; with one strategy, where the form makes another."""
    if "MultiWorkerMirroredStrategy()" in form:
        head, _, rest = PRELUDE.partition("strategy =")
        return head + "model =" + rest.partition("model =")[2] + form
    return PRELUDE + form


def write_start(code):
    """Return the parts of the prelude that this code uses: the model takes most of its time."""
    words = {"import", "from", "x", *re.findall(r"\w+", code)}
    parts = re.split(r"\n(?! )", PRELUDE)
    return "\n".join(part for part in parts if re.match(r"\w*", part)[0] in words) + "\n"


def find_names(code):
    return {found.entry.name for found in read_program(write_program(code))}


# --- as text ------------------------------------------------------------------------------


def test_the_table_is_whole():
    table = read_table()
    assert len(table) >= 80 and len({entry.name for entry in table}) == len(table)
    assert {entry.name for entry in table if not entry.old} == set(ELSEWHERE)
    for entry in table:
        assert entry.says in (STOPS, STYLE, "silently wrong"), entry.name
        assert bool(entry.error) == (entry.says == STOPS) or not entry.old, entry.name
        assert bool(entry.holds) == (entry.says == "silently wrong"), entry.name
        assert entry.why.endswith((".", "?")), entry.name


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_the_old_form_is_found_and_the_new_form_is_not(entry):
    assert find_names(entry.old) - {"horovod"} in ({entry.name}, set()), entry.old
    assert entry.name in find_names(entry.old)
    assert find_names(entry.new) == set()


@pytest.mark.parametrize(
    "entry", [e for e in ENTRIES if e.edit not in ("", "v1")], ids=lambda entry: entry.name
)
def test_the_mechanical_change_makes_the_new_form(entry):
    program = PRELUDE + entry.old
    changed, made = rewrite(program, read_program(program))
    assert changed == PRELUDE + entry.new and made
    assert find_names(changed.removeprefix(PRELUDE)) == set()


# --- run ----------------------------------------------------------------------------------


@contextlib.contextmanager
def another_worker_writes(name):
    """Hold the file open for writing in another process."""
    code = f"import h5py; file = h5py.File({name!r}, 'w'); print(1, flush=True); input()"
    other = start_python("-c", code, stdin=subprocess.PIPE)
    assert other.stdout.readline() == "1\n"
    try:
        yield
    finally:
        other.communicate("\n", timeout=240)


HELP = {
    "another_worker_writes": another_worker_writes,
    "auto_shard": lambda data, worker: data.shard(2, worker),  # as TensorFlow does under DATA
}


def run(code, holds=""):
    """Return the names that a form leaves behind, for `holds`; raises what it raises."""
    names = dict(HELP)
    exec(write_start(f"{code} {holds}") + code, names)
    return names


@pytest.mark.parametrize("entry", HERE, ids=NAMES)
def test_the_old_form_does_what_its_entry_says(tf, entry, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if entry.says != STOPS:
        names = run(entry.old, entry.holds)
        assert entry.says == STYLE or not eval(entry.holds, names)
        return
    with pytest.raises(Exception) as failed:
        run(entry.old)
    said = f"{failed.type.__name__}: {failed.value}"
    assert entry.error in said
    if entry.legacy and entry.name not in ("add-weight-name", "integer-shape"):  # could be yours
        found = diagnose(said)
        assert found is not None and "--keras legacy" in found.cure, said


@pytest.mark.parametrize("entry", HERE, ids=NAMES)
def test_the_new_form_runs(tf, entry, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run(entry.new, entry.holds)
    assert not entry.holds or eval(entry.holds, names)


@pytest.mark.parametrize("name", [entry.name for entry in ENTRIES if entry.alone])
def test_a_form_that_needs_its_own_process(write_warm, name):
    entry = find_entry(name)
    setting = f"free_port = {pick_free_ports(1)[0]}\n"
    if "strategy.scope" in entry.old:
        setting += TWO_REPLICAS
    ends = []
    for form in (entry.old, entry.new):
        last = f"\nassert {entry.holds or True}, 'does not hold'\n"
        program = PRELUDE.partition("strategy =")[0] + setting + form + last
        ends.append(run_child(*write_warm(program)).stderr)
    wanted = entry.error if entry.says == STOPS else "does not hold"
    assert wanted in ends[0] and wanted not in ends[1], ends


def test_keras_2_runs_what_is_marked_so(write_warm, tmp_path):
    """In a process of its own, where tf.keras is what TF_USE_LEGACY_KERAS=1 makes it.

    (test_old_programs runs a program with that variable.)
    """
    forms = {e.name: write_start(e.old) + e.old for e in HERE if e.legacy and e.says == STOPS}
    program = textwrap.dedent("""\
        import json, sys
        import tensorflow, tf_keras
        tensorflow.keras = tf_keras
        failed = {}
        for name, form in json.load(sys.stdin).items():
            try:
                exec(form, {})
            except Exception as error:
                failed[name] = f"{type(error).__name__}: {error}"
        print(json.dumps(failed))
        """)
    done = run_child(*write_warm(program), input=json.dumps(forms), cwd=tmp_path, status=0)
    assert json.loads(done.stdout.splitlines()[-1]) == {} and len(forms) > 25


# --- what the installed versions have ------------------------------------------------------


def test_the_inventory_is_that_of_the_installed_tensorflow(tf):
    """Every name of TensorFlow 1 that TensorFlow's own list has: there, or not."""
    wrong = []
    for path in installed._read_renames():
        if path.split(".")[1] in installed.LAZY:
            continue  # Keras, which has an inventory of its own
        here = tf
        for part in path.split(".")[1:]:
            here = getattr(here, part, None)
        if installed.has(path) != (here is not None):
            wrong.append(path)
        today = installed.find_today(path)
        if today and today.startswith("tf.compat.v1") and ".keras." not in today:
            there = tf
            for part in today.split(".")[1:]:
                there = getattr(there, part)  # raises where there is none
    assert wrong == []
    public = [name for name in dir(tf.keras.layers) if name[0].isupper()]
    assert len(public) > 100 and all(installed.has(f"tf.keras.layers.{name}") for name in public)
