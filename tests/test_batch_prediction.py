"""examples/batch_prediction.py: killed, damaged and shared runs, with every row counted."""

import fcntl
import json
import os
import random
import resource
import shutil
import signal
import sys
import time
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
from machines import Launcher, Namespaces
from needs import EVERYTHING, need_namespaces
from process_watch import wait_for
from test_examples import EXAMPLES, SECONDS, load_program, start

pytestmark = [pytest.mark.slow(20), pytest.mark.more_in_all]
ROWS = [400, 0, 33, 70, 1, 64]  # of each shard
KILLS = 50 if EVERYTHING else 4
PROGRAM = "batch_prediction.py"


def draw_images(number):
    return np.random.default_rng(number).integers(0, 256, (ROWS[number], 64), np.uint8)


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """A folder with two models, shards of 8 x 8 pixels, and the output of one process."""
    import keras
    import tensorflow as tf

    folder = tmp_path_factory.mktemp("given")
    for name, seed in (("model", 0), ("other", 1)):
        keras.utils.set_random_seed(seed)
        layers = [keras.Input((8, 8, 1)), keras.layers.Flatten(), keras.layers.Dense(5)]
        keras.Sequential(layers).export(folder / name, verbose=False)
    (folder / "shards").mkdir()
    for number in range(len(ROWS)):
        with tf.io.TFRecordWriter(str(folder / f"shards/s{number}.tfrecord")) as writer:
            for image in draw_images(number):
                writer.write(image.tobytes())
    predict(folder / "shards", folder / "alone", folder, model=folder / "model")
    return folder


def list_words(shards, output, model, *words):
    return [
        PROGRAM,
        "--model",
        model,
        "--shards",
        shards,
        "--output",
        output,
        "--batch-size",
        2,
        *words,
    ]


def predict(shards, output, folder, *words, model, status=0):
    with start(*list_words(shards, output, model, *words), folder=folder) as running:
        return running.end(status)


@contextmanager
def hold_shards(output, *numbers):
    """Claim some shards, so that nobody gets to them, while the block runs."""
    claims = output / "claims"
    claims.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        for number in numbers:
            lock = stack.enter_context((claims / f"s{number}.tfrecord.lock").open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def read_output(folder):
    """Return the manifest and every row, in its order; nothing but outputs and claims is there."""
    manifest = json.loads((folder / "manifest.json").read_text())
    rows = [np.load(folder / note["output"]) for note in manifest["shards"]]
    assert [len(each) for each in rows] == [note["rows"] for note in manifest["shards"]]
    names = {note["output"] for note in manifest["shards"]} | {"manifest.json", "claims"}
    assert {path.name for path in folder.iterdir()} == names
    assert not list((folder / "claims").glob("*.part*"))
    return manifest, np.concatenate(rows)


def assert_complete(folder, given):
    manifest, rows = read_output(folder)
    wanted, alone = read_output(given / "alone")
    assert manifest == wanted
    np.testing.assert_array_equal(rows, alone)


def test_one_process_predicts_what_the_model_says(given):
    import tensorflow as tf

    manifest, rows = read_output(given / "alone")
    assert (manifest["rows"], manifest["damaged"]) == (sum(ROWS), {})
    firsts = [note["first_row"] for note in manifest["shards"]]
    assert firsts == [0, *np.cumsum(ROWS[:-1]).tolist()]
    pixels = np.concatenate([draw_images(number) for number in range(len(ROWS))])
    pixels = pixels.reshape(-1, 8, 8, 1) / np.float32(255)
    model = tf.saved_model.load(str(given / "model"))
    logits = model.serve(tf.constant(pixels, tf.float32))
    np.testing.assert_array_equal(rows, np.argmax(logits, -1))


def test_more_workers_than_shards_share_them(given, tmp_path):
    """Two shards, four workers: each row is predicted once, by whoever has claimed it."""
    shards = tmp_path / "shards"
    shards.mkdir()
    for number in (0, 3):
        shutil.copy(given / f"shards/s{number}.tfrecord", shards)
    words = list_words(shards, tmp_path / "out", given / "model")
    with ExitStack() as stack:
        workers = [stack.enter_context(start(*words, folder=tmp_path)) for _ in range(4)]
        reports = [json.loads(worker.end()[-1]) for worker in workers]
    assert [report["rows"] for report in reports] == [470] * 4
    assert sum(report["rows_here"] for report in reports) == 470
    assert len(read_output(tmp_path / "out")[1]) == 470


def test_no_kill_loses_or_doubles_a_row(given, tmp_path):
    """Two workers, one of them killed at any moment; the other one finishes all alone."""
    at_random, begun = random.Random(3), time.monotonic()
    predict(given / "shards", tmp_path / "timed", tmp_path, model=given / "model")
    seconds, cut = time.monotonic() - begun, 0
    for kill in range(KILLS):
        words = list_words(given / "shards", tmp_path / f"out{kill}", given / "model")
        with ExitStack() as stack, ExitStack() as holding:
            if kill == 0:  # it can't be done before
                holding.enter_context(hold_shards(tmp_path / "out0", 5))
            victim, other = (stack.enter_context(start(*words, folder=tmp_path)) for _ in range(2))
            time.sleep(at_random.uniform(0.2, 1) * seconds)
            victim.send(signal.SIGKILL)
            cut += victim.process.wait(SECONDS) == -signal.SIGKILL
            holding.close()
            other.end()
        assert_complete(tmp_path / f"out{kill}", given)
    assert cut > 0, "all were done before they were killed"


def test_a_start_after_a_kill_continues_with_what_is_left(given, tmp_path):
    out = tmp_path / "out"
    words = list_words(given / "shards", out, given / "model")
    with hold_shards(out, 5):  # it never gets to the last one
        with start(*words, folder=tmp_path) as running:
            wait_for((out / "s0.tfrecord.npy").exists)
            running.send(signal.SIGKILL)
    assert not (out / "manifest.json").exists()
    (out / "claims/s5.tfrecord.part99").touch()  # as a worker leaves that dies meanwhile
    report = json.loads(predict(given / "shards", out, tmp_path, model=given / "model")[-1])
    assert report["rows_here"] <= sum(ROWS)
    assert_complete(out, given)
    again = json.loads(predict(given / "shards", out, tmp_path, model=given / "model")[-1])
    assert (again["rows"], again["rows_here"]) == (sum(ROWS), 0)


def test_of_two_machines_with_a_shared_folder_one_dies(given, tmp_path):
    """Network namespaces; the last shard is held until the second machine's launcher is dead."""
    need_namespaces()
    networks, launchers, out = Namespaces(2), [], tmp_path / "out"
    meet = ["--rendezvous", f"{networks.address(0)}:2951", "--trust-network", "--independent"]
    words = [EXAMPLES / PROGRAM, *list_words(given / "shards", out, given / "model")[1:]]
    try:
        with hold_shards(out, 5):
            for number in (0, 1):
                own = ["--workers", 2, "--logs", f"logs{number}"]
                inside = networks.inside(number)
                launchers.append(Launcher(*meet, *own, *words, inside=inside, cwd=tmp_path))
                if number == 0:
                    launchers[0].wait_for("hosting at")
            wait_for(lambda: len(list((out / "claims").glob("*.done"))) == len(ROWS) - 1)
            launchers[1].kill()
        status, report, _ = launchers[0].end()
    finally:
        for launcher in launchers:
            launcher.close()
        networks.close()
    assert (status, report["failed"]) == (255, 1)
    assert "is lost with its machine" in report["cause"]
    assert_complete(out, given)


def test_a_damaged_shard_is_named_skipped_on_request_and_predicted_once_it_is_whole(
    given, tmp_path
):
    shards, out = tmp_path / "shards", tmp_path / "out"
    shutil.copytree(given / "shards", shards)
    broken = bytearray((shards / "s2.tfrecord").read_bytes())
    broken[len(broken) // 2] ^= 1
    (shards / "s2.tfrecord").write_bytes(broken)
    cut = (shards / "s3.tfrecord").read_bytes()
    (shards / "s3.tfrecord").write_bytes(cut[:-20])
    (shards / "s4.tfrecord").unlink()
    (shards / "s4.tfrecord").mkdir()  # no file at all
    lines = predict(shards, out, tmp_path, model=given / "model", status=1)
    assert [line.split()[1] for line in lines if line.startswith("damaged: ")] == [
        "s2.tfrecord",
        "s3.tfrecord",
        "s4.tfrecord",
    ]
    assert not any("{{" in line or "Op:" in line for line in lines)
    assert lines[-1].startswith("3 of 6 shards are damaged") and "--skip-damaged" in lines[-1]
    assert not (out / "manifest.json").exists()

    lines = predict(shards, out, tmp_path, "--skip-damaged", model=given / "model")
    assert json.loads(lines[-1])["damaged"] == 3
    manifest, rows = read_output(out)
    assert manifest["rows"] == len(rows) == 400 + 64
    assert list(manifest["damaged"]) == ["s2.tfrecord", "s3.tfrecord", "s4.tfrecord"]

    (shards / "s4.tfrecord").rmdir()
    for number in (2, 3, 4):
        shutil.copy(given / f"shards/s{number}.tfrecord", shards)
    predict(shards, out, tmp_path, model=given / "model")
    assert_complete(out, given)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--parts", "2"], "a row has 64 bytes. The model takes [8, 8, 1], 64 bytes, times"),
        (["--pattern", "*.gz"], "no file matches *.gz"),
        (["--pattern", "/s*"], "no file matches /s*"),
        (["--batch-size", "0"], "--batch-size must be at least 1"),
        (["--model", "{shards}"], "not a SavedModel with a signature"),
        (["--output", "/proc/predicted"], "--output /proc/predicted: "),
        (["--output", "{alone}", "--model", "{other}"], "model differ. Name another folder"),
        (["--output", "{alone}", "--pattern", "s[123]*"], "shards differ. Name another folder"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(given, tmp_path, monkeypatch, words, said):
    """A damaged shard's test sees the line, and the status, that a process makes of it."""
    places = {"shards": given / "shards", "alone": given / "alone", "other": given / "other"}
    words = [word.format(**places) for word in words]
    command = list_words(given / "shards", tmp_path / "out", given / "model", *words)
    monkeypatch.setattr(sys, "argv", [str(word) for word in command])
    with pytest.raises(SystemExit) as refused:
        load_program(PROGRAM).main()
    line = str(refused.value)
    assert said in line and "\n" not in line
    assert not list((tmp_path / "out").glob("*.npy"))


def test_a_model_that_would_give_wrong_bytes_is_refused_when_it_is_loaded(given, tmp_path):
    import tensorflow as tf

    program = load_program(PROGRAM)

    def refuse(row, classes, dtype="float32"):
        def answer(rows):
            return {"classes": tf.zeros([tf.shape(rows)[0], *classes])}

        module = tf.Module()
        spec = tf.TensorSpec(row, tf.as_dtype(dtype))
        module.answer = tf.function(answer, input_signature=[spec])
        tf.saved_model.save(module, str(tmp_path / "odd"), signatures=module.answer)
        with pytest.raises(SystemExit) as refused:
            program.load_model(tmp_path / "odd")
        shutil.rmtree(tmp_path / "odd")
        return str(refused.value).partition("odd: ")[2]

    assert refuse([None, 8], [3], "uint8").startswith("its input must be floats [None, ...], got u")
    for row in ([4, 8], [None, None], [None]):
        assert refuse(row, [3]).startswith("its input must be floats [None, ...], got float32")
    for classes in ([300], [1], []):  # a class is a byte; and one class is always the likeliest
        assert refuse([None, 8], classes).startswith("its output must be [None, ..., 2 to 256 cl")

    cut = shutil.copytree(given / "model", tmp_path / "cut") / "variables"
    (cut / "variables.data-00000-of-00001").write_bytes(b"short")
    nameless = shutil.copytree(given / "model", tmp_path / "nameless")
    (nameless / "fingerprint.pb").unlink()
    for folder in (cut.parent, nameless):
        with pytest.raises(SystemExit, match="not a SavedModel with a signature [(][^\n]+$"):
            program.load_model(folder)


def test_a_note_is_believed_only_with_its_output_and_its_shard(given, tmp_path):
    read_note, out = load_program(PROGRAM).read_note, tmp_path / "out"
    shutil.copytree(given / "alone", out)
    shard = given / "shards/s3.tfrecord"
    assert read_note(shard, out)["rows"] == ROWS[3]
    note = out / "claims/s3.tfrecord.done"
    (out / "s3.tfrecord.npy").rename(tmp_path / "moved")
    assert read_note(shard, out) is None
    (tmp_path / "moved").rename(out / "s3.tfrecord.npy")
    assert read_note(tmp_path / "gone" / shard.name, out) is None
    note.write_text("")  # as a power cut leaves it
    assert read_note(shard, out) is None


def test_a_full_disk_leaves_nothing_that_looks_complete(given, tmp_path):
    """A limit on the size of files stands in for the disk."""
    words = list_words(given / "shards", tmp_path / "out", given / "model")
    with ExitStack() as holding, hold_shards(tmp_path / "out", *range(1, len(ROWS))):
        holding.enter_context(hold_shards(tmp_path / "out", 0))
        with start(*words, folder=tmp_path) as running:
            most = (128 + ROWS[0] - 1, resource.RLIM_INFINITY)  # NumPy's header, all but one row
            resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, most)
            holding.close()
            lines = running.end(status=1)
    assert lines == [f"--output {tmp_path}/out: File too large"]
    assert not list((tmp_path / "out").glob("*.npy")) and os.listdir(tmp_path / "out") == ["claims"]
    predict(given / "shards", tmp_path / "out", tmp_path, model=given / "model")
    assert_complete(tmp_path / "out", given)
