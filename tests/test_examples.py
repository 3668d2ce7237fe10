"""The programs of examples/: run as their first lines say, and compared with `utils`.

Every program runs in processes of its own. What a docstring says to type on two machines
is typed here on one, with other addresses. The weights that a program saves are compared
with those of `utils`, trained on one device with the program's own model and batches.
"""

import ast
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import yaml

from utils.data import load
from utils.engines.manifests import ManifestSettings, make_manifest, write_files
from utils.tf_config import pick_free_ports

EXAMPLES = Path(__file__).parents[1] / "examples"
PROGRAMS = sorted(path.name for path in EXAMPLES.glob("*.py"))
PUBLIC = {"jax", "jax.experimental", "keras", "numpy", "optuna", "tensorflow", "tf_keras"}
OURS = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
SECONDS = 200  # for any one program, on a busy machine
HOLD = str(Path(__file__).with_name("held_program.py"))
SAVING = ("tensorflow:train.CheckpointManager", "save")
SMALL = ["--max-examples", "640"]
TELL = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"
# what a program's report ends with on `data_file`; old programs that do the same end with it, too
LOSSES = {
    "mirrored_custom_loop.py": 1.3776,
    "multi_worker_custom_loop.py": 1.3776,
    "multi_worker_fit.py": 0.8820,
    "parameter_server.py": 1.3814,  # --workers 1 --steps 30
}
MAX_LINES = {"capstone.py": 250, "batch_prediction.py": 175, "hyperparameter_search.py": 175}


# --- every program, as text ---------------------------------------------------------------


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_is_one_page_of_public_api(program):
    text = (EXAMPLES / program).read_text()
    tree = ast.parse(text)
    docstring = ast.get_docstring(tree, clean=False)
    lines = [line for line in text.splitlines()[tree.body[0].end_lineno :] if line.strip()]
    assert 40 <= len(lines) <= MAX_LINES.get(program, 120)
    assert max(map(len, text.splitlines())) <= 100
    assert f"python {program}" in docstring
    imports = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imports.add(node.module)
    assert {name.split(".")[0] for name in imports} - set(sys.stdlib_module_names) <= PUBLIC
    assert not re.search(r"\.(python|src)\.", text.replace("tensorflow.org", ""))


def load_program(name):
    """Return a program as a module, for tests of one of its functions."""
    spec = importlib.util.spec_from_file_location(name.partition(".")[0], EXAMPLES / name)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program


# --- running them -------------------------------------------------------------------------


class Running:
    """A program in a process group of its own; `end()` returns its lines of output."""

    def __init__(self, words, environment, folder, cwd=EXAMPLES):
        self.output = open(folder / f"output-{time.monotonic_ns()}", "w+")
        self.process = subprocess.Popen(
            [sys.executable, *words],
            cwd=cwd,
            env=environment,
            start_new_session=True,
            stdout=self.output,
            stderr=subprocess.STDOUT,
        )

    def read(self):
        self.output.seek(0)
        return self.output.read()

    def end(self, status=0):
        try:
            self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"not done in {SECONDS} s:\n{self.read()}") from None
        assert self.process.returncode == status, self.read()
        return self.read().splitlines()

    def send(self, number):
        os.killpg(self.process.pid, number)

    def close(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.output.close()


def make_environment(data_file):
    data = {"FASHION_MNIST": str(data_file)} if data_file else {}
    return {**OURS, "TF_CPP_MIN_LOG_LEVEL": "3", **data}


def read_command(command, environment):
    """Let bash read a line that begins with `python`; return Python's words and variables.

    So the line is read as it is documented, and the program starts as fast as the others.
    """
    command = command.replace("python ", f"exec {sys.executable} -I -S -c '{TELL}' ", 1)
    return read_words(["bash", "-c", command], [], environment)


def read_words(command, more, environment, folder=None):
    """Run a command that starts Python with TELL; return Python's words and variables."""
    words = [*command, *(["-I", "-S", "-c", TELL, *more] if more else [])]
    done = subprocess.run(words, env=environment, cwd=folder, capture_output=True, check=True)
    return json.loads(done.stdout)


@contextmanager
def start(program, *arguments, data_file=None, folder, held=()):
    """Start a program with no TF_CONFIG, as on one machine; `held` is for `held_program`."""
    words = add_hold(held, [program, *arguments])
    running = Running(words, make_environment(data_file), folder)
    try:
        yield running
    finally:
        running.close()


def add_hold(held, words):
    """Return the words that start a program, through `held_program` if it is to stay somewhere."""
    return [str(word) for word in ([HOLD, *held] if held else [])] + list(map(str, words))


@contextmanager
def start_as_documented(program, *options, data_file, folder, arguments=None, held=()):
    """Start the lines that the docstring has for node-a and node-b, on this machine.

    All of them get `options`, and those that name a role of `arguments` its options too.
    """
    text = ast.get_docstring(ast.parse((EXAMPLES / program).read_text()), clean=False)
    setting = re.search(r"^ +(C='.*')$", text, re.MULTILINE)
    commands = re.findall(rf"^ +node-[ab]\$ (.*?{program}.*?)(?: &)?$", text, re.M | re.S)
    commands = [command.partition("\n\n")[0] for command in commands]
    assert len(commands) >= 2
    names = set(re.findall(r"node-[ab]:\d+", text))
    ports = dict(zip(names, pick_free_ports(len(names))))
    running = []
    try:
        for command in commands:
            role = next((r for r in arguments or {} if f"{program} {r}" in command), None)
            more = [*options, *(arguments[role] if role else [])]
            command = f"{setting[1] if setting else ''}\n{command} {' '.join(map(str, more))}"
            for name, port in ports.items():
                command = command.replace(name, f"localhost:{port}")
            words, environment = read_command(command, make_environment(data_file))
            running.append(Running(add_hold(held, words), environment, folder))
        yield running
    finally:
        for each in running:
            each.close()


def read_report(lines, program=None):
    """Return what the last line of a program says; its loss is the one of `LOSSES`, if asked."""
    report = json.loads(lines[-1])
    assert {"loss", "accuracy"} <= set(report) and 0 <= report["accuracy"] <= 1
    assert program is None or report["loss"] == pytest.approx(LOSSES[program], abs=5e-4)
    return report


# --- what `utils` makes of the same model and batches -------------------------------------


@contextmanager
def start_pods(program, *options, volume, data_file, folder, held=()):
    """Start two pods of the Indexed Job that `distlab manifest` writes, on two addresses.

    Each runs in a fresh copy of the image's /app, and only the volume is kept.
    """
    settings = ManifestSettings(
        (program, *map(str, options)), checkpoint_dir="pvc:shared", name="digits"
    )
    files = make_manifest("kubernetes", settings)
    job = list(yaml.safe_load_all(files["job.yaml"]))[1]
    [container] = job["spec"]["template"]["spec"]["containers"]
    variables = {each["name"]: each["value"] for each in container["env"]}
    assert variables["DISTLAB_CHECKPOINT_DIR"] in [
        m["mountPath"] for m in container["volumeMounts"]
    ]
    variables["DISTLAB_CHECKPOINT_DIR"] = str(volume)
    for index, host in enumerate(("127.0.0.1", "127.0.0.2")):  # in place of the Service's DNS
        [port] = pick_free_ports(1, host)
        name = f"digits-{index}.digits:2222"
        variables["DISTLAB_HOSTS"] = variables["DISTLAB_HOSTS"].replace(name, f"{host}:{port}")
    words = [re.sub(r"\$\((\w+)\)", lambda m: variables[m[1]], word) for word in container["args"]]
    running = []
    try:
        for index in range(2):
            image = folder / f"pod-{index}"
            shutil.rmtree(image, ignore_errors=True)  # a restarted container has new files
            write_files(files, image)
            shutil.copy(EXAMPLES / program, image)
            own = {**variables, "JOB_COMPLETION_INDEX": str(index)}
            told = read_words([sys.executable, words[1]], words[2:], {**OURS, **own}, image)
            environment = {**make_environment(data_file), **told[1]}
            running.append(Running(add_hold(held, told[0]), environment, folder, image))
        yield running
    finally:
        for each in running:
            each.close()


@pytest.fixture
def import_program(data_file, monkeypatch):
    """A function that imports a program, which then reads the small data."""
    monkeypatch.setenv("FASHION_MNIST", str(data_file))

    return lambda name: load_program(f"{name}.py")


def build(build_model, keras_kind="keras"):
    """Return a Keras 3 model with the weights that a program's model begins with.

    Sets the seed, which the order of batches made afterwards depends on too.
    """
    import keras
    import tf_keras

    kind = {"keras": keras, "tf_keras": tf_keras}[keras_kind]
    kind.utils.set_random_seed(0)
    theirs = build_model()
    layers = [keras.Input((28, 28, 1)), keras.layers.Conv2D(32, 3, activation="relu")]
    layers += [keras.layers.MaxPooling2D(), keras.layers.Flatten(), keras.layers.Dense(10)]
    model = keras.Sequential(layers)
    model.set_weights(theirs.get_weights())
    return model


def train_with_utils(model, epochs, momentum=0.9):
    """Train `model` on `epochs`, each a dataset of batches; return weights and test numbers."""
    import keras
    import tensorflow as tf

    from utils.training.state import ExampleMean, TrainState, find_loss
    from utils.training.step import compile_steps, make_train_replica

    def weigh(images, labels):
        count = tf.size(labels)
        return images, labels, tf.fill([count], 1 / tf.cast(count, tf.float32))

    optimizer = keras.optimizers.SGD(0.05, momentum=momentum)
    optimizer.build(model.trainable_variables)
    loss, _ = find_loss(None, "float32")
    strategy, mean = tf.distribute.get_strategy(), ExampleMean("loss", loss)
    state = TrainState(strategy, model, optimizer, loss, {"loss": mean})
    steps = compile_steps(strategy, make_train_replica(state))
    for batches in epochs:
        batches = batches.map(weigh)
        steps(iter(batches), tf.constant(int(batches.cardinality())))
    return model.get_weights()


def largest_difference(path, weights, keras_kind="keras"):
    """Return how far the weights of the model in a file are from `weights`, at most."""
    import keras
    import tf_keras

    kind = {"keras": keras.saving, "tf_keras": tf_keras.models}[keras_kind]
    saved = kind.load_model(path).get_weights()
    assert [w.shape for w in saved] == [w.shape for w in weights]
    return max(float(np.abs(a - b).max()) for a, b in zip(saved, weights))


def peek(batches):
    """Go once through `batches` and return them: `fit` starts one pass before its first epoch."""
    for _ in batches:
        pass
    return batches


# --- one machine --------------------------------------------------------------------------


def test_mirrored_fit_on_the_bundled_data_trains_as_utils(tmp_path, import_program, monkeypatch):
    settings = [*SMALL, "--epochs", "1", "--save", tmp_path / "m.keras"]
    with start("mirrored_fit.py", *settings, folder=tmp_path) as run:
        report = read_report(run.end())
    program = import_program("mirrored_fit")
    model = build(program.build_model)
    monkeypatch.delenv("FASHION_MNIST")
    batches = peek(program.make_train_batches(640))
    weights = train_with_utils(model, [batches])
    assert largest_difference(tmp_path / "m.keras", weights) < 1e-5
    assert report["accuracy"] > 0.4


def test_the_mirrored_custom_loop_trains_as_utils(tmp_path, data_file, import_program):
    options = {"data_file": data_file, "folder": tmp_path}
    with start("mirrored_custom_loop.py", "--save", tmp_path / "m.keras", **options) as run:
        lines = run.end()
    program = import_program("mirrored_custom_loop")
    model = build(program.build_model)
    batches = program.make_train_batches()
    weights = train_with_utils(model, [batches, batches])
    assert largest_difference(tmp_path / "m.keras", weights) < 1e-5
    assert lines[-3].startswith("epoch 1: loss")
    assert read_report(lines, "mirrored_custom_loop.py")["accuracy"] > 0.5


def test_the_tpu_step_compiled_for_the_cpu_trains_as_utils(tmp_path, data_file, import_program):
    options = {"data_file": data_file, "folder": tmp_path}
    on_cpu = ["--cpu", "--policy", "float32", "--steps", "30", "--save", tmp_path / "m.keras"]
    with start("tpu.py", *on_cpu, **options) as run, start("tpu.py", **options) as without:
        read_report(run.end())
        assert without.end(status=1)[-1].startswith("There is no TPU here; --cpu")
    program = import_program("tpu")
    model = build(program.build_model)
    batches = program.make_batches("train", 64).take(30)
    weights = train_with_utils(model, [batches])
    assert largest_difference(tmp_path / "m.keras", weights) < 1e-3


def test_mixed_precision_learns_as_float32_and_survives_an_overflow(
    tmp_path, data_file, import_program
):
    options = {"data_file": data_file, "folder": tmp_path}
    half = ["--policy", "mixed_float16", "--overflow", "--max-examples", "128", "--epochs", "1"]
    saved = ["--save", tmp_path / "m.keras"]
    with (
        start("mixed_precision.py", *saved, **options) as bfloat,
        start("mixed_precision.py", *half, **options) as scaled,
    ):
        assert read_report(bfloat.end())["accuracy"] > 0.5
        lines = scaled.end()
    assert "mixed_float16 with tf_keras, all weights finite: True" in lines
    assert "loss: nan" in "".join(lines)  # the overflow did happen
    program = import_program("mixed_precision")
    model = build(lambda: program.build_model(_keras()))
    batches = peek(program.make_train_batches())
    weights = train_with_utils(model, [batches, batches])
    assert 0 < largest_difference(tmp_path / "m.keras", weights) < 0.05


def _keras():
    import keras

    return keras


# --- several workers ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["multi_worker_custom_loop", "multi_worker_fit"])
def test_two_workers_train_as_utils_on_one_device(name, tmp_path, data_file, import_program):
    options = {"data_file": data_file, "folder": tmp_path}
    with start_as_documented(f"{name}.py", "--save", tmp_path / "m.keras", **options) as workers:
        reports = [read_report(worker.end(), f"{name}.py") for worker in workers]
    assert reports[0] == reports[1] and reports[0]["accuracy"] > 0.5
    program = import_program(name)
    kind = "tf_keras" if name.endswith("fit") else "keras"
    model = build(program.build_model, kind)
    batches = program.make_batches("train", 64)
    if name.endswith("fit"):
        peek(batches)
    weights = train_with_utils(model, [batches, batches])
    assert largest_difference(tmp_path / "m.keras", weights, kind) < 1e-4
    assert [path.name for path in tmp_path.glob("*.keras")] == ["m.keras"]


def test_a_parameter_server_run_of_one_worker_trains_as_utils(tmp_path, data_file, import_program):
    options = {"data_file": data_file, "folder": tmp_path}
    settings = ["--workers", "1", "--steps", "30", "--save", tmp_path / "m.keras"]
    with start("parameter_server.py", *settings, **options) as chief:
        read_report(chief.end(), "parameter_server.py")
    program = import_program("parameter_server")
    model = build(program.build_model)
    batches = program.make_train_batches().take(30)
    weights = train_with_utils(model, [batches], momentum=0.0)
    assert largest_difference(tmp_path / "m.keras", weights) < 1e-5


def test_two_asynchronous_workers_learn_and_every_task_ends(tmp_path, data_file):
    options = {"data_file": data_file, "folder": tmp_path}
    with start_as_documented("parameter_server.py", "--steps", "100", **options) as tasks:
        *others, chief = tasks
        assert read_report(chief.end())["accuracy"] > 0.4
        assert all(not "".join(task.end()).count("Traceback") for task in others)


def test_trainers_of_one_pass_share_its_examples(tmp_path, data_file):
    with start("data_service.py", data_file=data_file, folder=tmp_path) as service:
        lines = service.end()
    reports = [json.loads(line) for line in lines if line.startswith("{")]
    assert len(reports) == 2 and sum(report["examples"] for report in reports) == 640


def test_a_trainer_with_a_pass_of_its_own_trains_as_utils(tmp_path, data_file, import_program):
    options = {"data_file": data_file, "folder": tmp_path}
    settings = ["--sharding", "off", "--save", tmp_path / "$$.keras"]  # $$: the process id
    with start_as_documented("data_service.py", **options, arguments={"trainer": settings}) as run:
        dispatcher, worker, *trainers = run
        reports = [read_report(trainer.end()) for trainer in trainers]
        for server in (worker, dispatcher):
            server.send(signal.SIGINT)
            server.process.wait(SECONDS)
    assert [report["examples"] for report in reports] == [640, 640]
    program = import_program("data_service")
    model = build(program.build_model)
    weights = train_with_utils(model, [program.make_train_batches()])
    saved = list(tmp_path.glob("*.keras"))
    assert len(saved) == 2
    assert all(largest_difference(path, weights) < 1e-5 for path in saved)


# --- Keras on JAX -------------------------------------------------------------------------


def wait_for_file(path, workers):
    """Return once `path` is there; fail if a worker ends before."""
    deadline = time.monotonic() + SECONDS
    while not path.exists():
        assert time.monotonic() < deadline, "waited in vain for a checkpoint"
        assert all(worker.process.poll() is None for worker in workers), workers[0].read()
        time.sleep(0.02)


@pytest.mark.cold_start  # a warm process has imported Keras on TensorFlow
@pytest.mark.long
@pytest.mark.timeout(600)
def test_keras_on_jax_resumes_under_another_layout_to_the_weights_of_one_device(
    tmp_path, data_file, monkeypatch
):
    """One device; two processes of two devices, sharded, killed; the same, data parallel.

    As on machines without TensorFlow, which Keras imports if it's there; in lesson 24 it is.
    """
    (tmp_path / "tensorflow.py").write_text("raise ImportError")
    monkeypatch.setitem(OURS, "PYTHONPATH", str(tmp_path))
    options = {"data_file": data_file, "folder": tmp_path}
    common = ["--epochs", "2", "--checkpoint-every", "5", "--checkpoint"]
    several = [*common, tmp_path / "two.npz", "--cpu-devices", "2"]
    alone = [*common, tmp_path / "one.npz", "--cpu-devices", "1"]
    in_second_save = (tmp_path / "never", 2, "numpy", "savez")
    held = {"held": in_second_save, **options}
    with start_as_documented("keras_jax.py", *several, "--sharded", **held) as workers:
        wait_for_file(tmp_path / "two.npz", workers)
        workers[1].send(signal.SIGKILL)
        with np.load(tmp_path / "two.npz") as saved:
            assert saved["step"] == 5
        held = [find_bytes_held(worker.read()) for worker in workers]
    run = ["-m", "distlab", "run", "--logs", tmp_path / "logs", "keras_jax.py", *several]
    with start("keras_jax.py", *alone, **options) as one, start(*run, **options) as both:
        lines, _ = one.end(), both.end()  # `distlab run` sets what initialize() reads
    told = [
        (tmp_path / "logs" / f"attempt-1/worker-{k}/stdout.log").read_text().splitlines()
        for k in (0, 1)
    ]
    assert all("resumed at step " in "".join(each) for each in told)
    assert held[0] == held[1] < 0.3 * find_bytes_held("".join(told[0]))
    report, other, wanted = (
        read_report([line for line in each if line.startswith("{")]) for each in (*told, lines)
    )
    assert report == other and wanted["accuracy"] > 0.5
    assert report == pytest.approx(wanted, abs=1e-3)
    with np.load(tmp_path / "one.npz") as one, np.load(tmp_path / "two.npz") as two:
        assert sorted(one) == sorted(two) and one["step"] == two["step"] == 20
        differences = [np.abs(one[name] - two[name]).max() for name in one]
    assert max(differences) < 2e-3  # float32 adds up in another order, 20 times


def find_bytes_held(text):
    return int(re.search(r"(\d+) bytes of weights and momentum on each", text)[1])


# --- preemption ---------------------------------------------------------------------------


def wait_for_step(folder, step, workers):
    """Return once a checkpoint of `step` or later is whole; fail if a worker ends before."""
    deadline = time.monotonic() + SECONDS
    while not any(int(p.stem.split("-")[1]) >= step for p in folder.glob("ckpt-*.index")):
        assert time.monotonic() < deadline, "waited in vain for a checkpoint"
        assert all(worker.process.poll() is None for worker in workers), workers[0].read()
        time.sleep(0.02)


def test_a_damaged_checkpoint_is_skipped(tmp_path, import_program, capsys):
    import tensorflow as tf

    latest_intact_checkpoint = import_program("checkpoint_and_resume").latest_intact_checkpoint
    assert latest_intact_checkpoint(f"{tmp_path}/none") is None
    values = tf.Variable(tf.random.stateless_normal([1000], [1, 2]))
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(values=values), tmp_path, 3)
    old, new = (manager.save(checkpoint_number=step) for step in (90, 100))
    assert latest_intact_checkpoint(f"{tmp_path}") == new == tf.train.latest_checkpoint(tmp_path)
    data = Path(f"{new}.data-00000-of-00001")
    data.write_bytes(data.read_bytes()[: data.stat().st_size // 2])
    assert (
        latest_intact_checkpoint(f"{tmp_path}") == old
        and tf.train.latest_checkpoint(tmp_path) == new
    )
    assert f"{new} is damaged" in capsys.readouterr().out


@pytest.mark.timeout(600)
def test_a_killed_and_a_told_run_end_with_the_weights_of_an_unbroken_one(
    tmp_path, data_file, import_program
):
    import keras

    folder, epochs = tmp_path / "checkpoints", 2  # of ten steps
    common = ["--checkpoint-every", "5", "--epochs", str(epochs)]
    settings = [*common, "--checkpoint-dir", folder, "--save", tmp_path / "broken.keras"]
    unbroken = [*common, "--checkpoint-dir", tmp_path / "other", "--save", tmp_path / "whole.keras"]
    options = {"data_file": data_file, "folder": tmp_path}

    with start_as_documented("checkpoint_and_resume.py", *unbroken, **options) as workers:
        [worker.end() for worker in workers]

    # As pods of Kubernetes: one is killed, and all start again with nothing but the volume.
    in_pods = [*common, "--checkpoint-dir", "$(DISTLAB_CHECKPOINT_DIR)"]
    pods = {"volume": folder, **options}
    killed, ended = tmp_path / "killed", tmp_path / "ended"
    first = {"held": (killed, 1, *SAVING), **pods}
    with start_pods("checkpoint_and_resume.py", *in_pods, **first) as workers:
        wait_for_step(folder, 5, workers)
        workers[1].send(signal.SIGKILL)
        killed.touch()
        workers[0].process.wait(SECONDS)
        assert workers[0].process.returncode not in (0, 75)

    second = {"held": (ended, 2, *SAVING), **pods}
    with start_pods("checkpoint_and_resume.py", *in_pods, **second) as workers:
        wait_for_step(folder, 15, workers)
        workers[1].send(signal.SIGTERM)
        ended.touch()
        told = [worker.end(status=75) for worker in workers]
    assert all("resumed from" in "".join(lines) for lines in told)
    assert told[0][-1] == told[1][-1] and told[0][-1].startswith("told to stop, saved at step")
    step = int(told[0][-1].split()[-1])
    assert 15 <= step < 10 * epochs

    with start_as_documented("checkpoint_and_resume.py", *settings, **options) as workers:
        lines = [worker.end() for worker in workers]
    assert f"step {step}" in "".join(lines[1]) and lines[0][-1] == lines[1][-1]

    program = import_program("checkpoint_and_resume")
    model = build(program.build_model)
    whole = keras.saving.load_model(tmp_path / "whole.keras").get_weights()
    assert largest_difference(tmp_path / "broken.keras", whole) == 0
    orders = [program.make_batches("train", 64, seed=epoch) for epoch in range(epochs)]
    weights = train_with_utils(model, orders)
    assert largest_difference(tmp_path / "whole.keras", weights) < 1e-3  # 5e-5 seen


# --- the capstone ---------------------------------------------------------------------------


def wait_for_checkpoint(folder, step, workers):
    """Wait until the checkpoint of `step`, or a later one, stands in `folder`."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        steps = [int(path.stem.split("-")[1]) for path in folder.glob("ckpt-*.index")]
        if max(steps, default=0) >= step:
            return
        assert all(worker.process.poll() is None for worker in workers), workers[0].read()
        time.sleep(0.05)
    raise AssertionError(f"no checkpoint of step {step}: {workers[0].read()}")


def train_capstone_with_utils(program, shards, steps):
    """Return the program's model, trained by `utils` on its batches of the first epoch."""
    import keras
    import tensorflow as tf

    from utils.training.state import ExampleMean, TrainState, find_loss, make_example_values
    from utils.training.step import compile_steps, make_train_replica

    keras.utils.set_random_seed(0)
    model, optimizer = program.build_model(), program.make_optimizer(steps)
    optimizer.build(model.trainable_variables)
    loss = make_example_values(find_loss(None, "float32")[0], None, "float32")
    state = TrainState(
        tf.distribute.get_strategy(), model, optimizer, loss, {"loss": ExampleMean("loss", loss)}
    )
    size = program.GLOBAL_BATCH_SIZE
    batches = program.read_batches(shards, "train", size, seed=0).take(steps)
    weighed = batches.map(lambda images, masks: (images, masks, tf.fill([size], 1 / size)))
    run = compile_steps(state.strategy, make_train_replica(state))
    run(iter(weighed), tf.constant(steps))
    return model


@pytest.mark.long
def test_the_capstone_survives_a_kill_and_trains_as_utils(tmp_path, data_file, import_program):
    """Two workers, one of them killed; then again, to the weights that utils gives on one."""
    import tensorflow as tf

    out, steps = tmp_path / "run", 4
    settings = ["--output", out, "--scenes", "128", "--steps", steps, "--checkpoint-every", "2"]
    options = {"data_file": data_file, "folder": tmp_path}
    killed = tmp_path / "killed"
    held = {"held": (killed, 1, *SAVING), **options}
    with start_as_documented("capstone.py", *settings, **held) as workers:
        wait_for_checkpoint(out / "checkpoints", 2, workers)
        workers[1].send(signal.SIGKILL)
        killed.touch()
        workers[0].process.wait(SECONDS)
        assert workers[0].process.returncode != 0
    assert not (out / "report.json").exists()
    with start_as_documented("capstone.py", *settings, **options) as workers:
        lines = [worker.end() for worker in workers]
    resumed = [int(lines[k][0].removeprefix("resumed from step ")) for k in (0, 1)]
    assert resumed[0] == resumed[1] and 2 <= resumed[0] < steps

    report = json.loads((out / "report.json").read_text())
    assert json.loads(lines[0][-1]) == report and report["steps"] == steps
    assert len(report["weights_checksum"]) == 64 and 0 <= report["foreground_iou"] <= 1
    program = import_program("capstone")
    model = train_capstone_with_utils(program, out / "scenes-128", steps)
    saved = tf.saved_model.load(str(out / "saved_model"))
    pictures, masks = next(iter(program.read_batches(out / "scenes-128", "test", 40)))
    np.testing.assert_allclose(saved.serve(pictures), model(pictures), atol=2e-2)
    losses = []
    for pictures, masks in program.read_batches(out / "scenes-128", "test", 40):
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(masks, model(pictures))
        losses.append(float(tf.reduce_mean(each)))
    assert report["loss"] == pytest.approx(np.mean(losses), abs=1e-3)


def test_the_capstone_draws_the_scenes_of_utils(import_program):
    from utils.data import load_scenes

    program, scenes = import_program("capstone"), load_scenes(train=8, test=1)
    data = load("fashion-mnist").train
    for number, wanted in enumerate(scenes.train):
        got = program.draw_scene(data.images, data.labels.astype(np.uint8), 1, number)
        np.testing.assert_array_equal(got, wanted)
