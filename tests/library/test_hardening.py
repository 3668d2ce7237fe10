"""What breaks a run from outside: full disks, closed streams, two runs at once, damaged folders."""

import json
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from distlab import cli
from utils.errors import DistributedError
from utils.events import EventWriter, read_events, to_json_line
from utils.files import hold_folder, make_folder
from utils.training import TrainConfig, train

QUICK = {"max_examples": 200, "model": "mlp", "epochs": 1}
FLAGS = ["--max-examples", "200", "--model", "mlp", "--epochs", "1"]
FULL = "/dev/full"  # Linux: every write to it finds the disk full


def parse_strictly(text):
    def refuse(word):
        raise ValueError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


def first_step(events):
    return next(event["first_step"] for event in events if event["event"] == "start")


def only_line(text):
    assert text.count("\n") == 1 and "Traceback" not in text, text
    return text


def save_short_of_space(*arguments, **options):
    from tensorflow import errors

    text = "{{node}} c/train-1.tempstate7; No space left on device [Op:SaveV2]"
    raise errors.ResourceExhaustedError(None, None, text)


def test_diverged_run_writes_json_that_strict_parsers_take(tf, tmp_path):
    with EventWriter(tmp_path / "e") as writer:
        report = train(**QUICK, optimizer="sgd", learning_rate=1e9, on_event=writer)
    assert not np.isfinite(report.loss[0])
    assert parse_strictly(report.to_json())["loss"] == [None]
    for line in (tmp_path / "e").read_text().splitlines():
        parse_strictly(line)
    assert [e["loss"] for e in read_events(tmp_path / "e") if e["event"] == "epoch"] == [None]
    assert "loss nan" in str(report) or "loss inf" in str(report)


def test_only_numbers_that_are_not_finite_become_null():
    record = {"a": [1.5, float("inf"), (float("-inf"), -0.0)], "b": {"c": float("nan"), "d": 3}}
    assert to_json_line(record) == '{"a": [1.5, null, [null, -0.0]], "b": {"c": null, "d": 3}}'


@pytest.mark.usefixtures("untested")
def test_diverged_run_resumes(tf, tmp_path):
    settings = {**QUICK, "optimizer": "sgd", "learning_rate": 1e9, "checkpoint_dir": tmp_path}
    train(**settings)
    report = train(**{**settings, "epochs": 2})
    assert len(report.loss) == 2 and np.isnan(report.loss[1])


@pytest.mark.usefixtures("untested")
def test_two_runs_may_not_share_a_checkpoint_folder(tf, tmp_path):
    seen = []

    def start_another(event):
        if event["event"] == "start":
            with pytest.raises(DistributedError, match="another run saves there"):
                train(**QUICK, checkpoint_dir=tmp_path)
            seen.append(event)

    train(**QUICK, checkpoint_dir=tmp_path, on_event=start_another)
    assert seen and train(**QUICK, checkpoint_dir=tmp_path).epochs == 1  # it was let go


def test_failed_run_lets_go_of_its_folder(tf, tmp_path):
    def fail(event):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(**QUICK, checkpoint_dir=tmp_path, on_event=fail)
    os.close(hold_folder("checkpoint", tmp_path))


@pytest.mark.usefixtures("untested")
def test_full_disk_is_one_line_and_keeps_earlier_checkpoints(tf, tmp_path, monkeypatch):
    whole = train(**{**QUICK, "epochs": 2})
    train(**QUICK, checkpoint_dir=tmp_path)
    (tmp_path / "train-9_temp").mkdir()
    with monkeypatch.context() as patch, pytest.raises(DistributedError) as refused:
        patch.setattr(tf.train.CheckpointManager, "save", save_short_of_space)
        train(**{**QUICK, "epochs": 2}, checkpoint_dir=tmp_path)
    assert str(refused.value) == (
        f"checkpoint_dir {tmp_path} can't be written (No space left on device). "
        "Name another folder, or make room."
    )
    assert not (tmp_path / "train-9_temp").exists()
    resumed = train(**{**QUICK, "epochs": 2}, checkpoint_dir=tmp_path)
    assert resumed.weights_checksum == whole.weights_checksum


@pytest.mark.usefixtures("untested")
def test_damaged_list_of_checkpoints_is_written_anew_and_nothing_is_lost(tf, tmp_path):
    """TensorFlow ignores such a list, and would begin again over the checkpoints."""
    from utils.training.checkpoints import KEPT  # imports TensorFlow

    train(**QUICK, checkpoint_dir=tmp_path)
    for epochs, content in enumerate((b"", b"\xff\xfe\x00", b"gibberish {"), start=2):
        (tmp_path / "checkpoint").write_bytes(content)
        seen = []
        train(**{**QUICK, "epochs": epochs}, checkpoint_dir=tmp_path, on_event=seen.append)
        assert first_step(seen) == 4 * (epochs - 1), content
        assert tf.train.latest_checkpoint(tmp_path) == str(tmp_path / f"train-{4 * epochs}")
        listed = tf.train.get_checkpoint_state(str(tmp_path)).all_model_checkpoint_paths
        steps = range(4, 4 * epochs + 1, 4)
        assert [int(path.rsplit("-", 1)[1]) for path in listed] == [*steps][-KEPT:]


@pytest.mark.usefixtures("untested")
def test_checkpoint_newer_than_the_list_or_the_clock_is_used(tf, tmp_path):
    """Killed between the files and the list; or the clock was set back since."""
    train(**QUICK, checkpoint_dir=tmp_path)
    listed = (tmp_path / "checkpoint").read_text()
    train(**{**QUICK, "epochs": 2}, checkpoint_dir=tmp_path)
    (tmp_path / "checkpoint").write_text(listed)
    seen = []
    train(**{**QUICK, "epochs": 2}, checkpoint_dir=tmp_path, on_event=seen.append)
    assert first_step(seen) == 8
    path = tmp_path / "checkpoint"
    path.write_text(path.read_text().replace("timestamp: 1", "timestamp: 9"))
    train(**{**QUICK, "epochs": 2}, checkpoint_dir=tmp_path, on_event=seen.append)
    assert [e["first_step"] for e in seen if e["event"] == "start"] == [8, 8]


def test_checkpoints_of_another_program_are_left_alone(tf, tmp_path):
    tracked = tf.train.Checkpoint(v=tf.Variable(1.0))
    tf.train.CheckpointManager(tracked, str(tmp_path), max_to_keep=9).save()
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(DistributedError, match="holds ckpt-1 of another program"):
        train(**QUICK, checkpoint_dir=tmp_path)
    assert sorted(os.listdir(tmp_path)) == before


def test_folder_that_cannot_be_written_is_refused_before_training(tf, tmp_path):
    (tmp_path / "file").write_text("")
    for name, called in (("export", "export"), ("checkpoint_dir", "checkpoint")):
        seen = []
        with pytest.raises(DistributedError, match=f"{called} .*can't be written"):
            train(**QUICK, **{name: tmp_path / "file" / "inner"}, on_event=seen.append)
        assert not seen
    with pytest.raises(DistributedError, match="export /proc/x can't be written"):
        make_folder("export", type(tmp_path)("/proc/x"))


@pytest.mark.usefixtures("untested")
def test_export_over_a_file_is_one_line(tf, tmp_path):
    (tmp_path / "saved_model").write_text("mine")
    with pytest.raises(DistributedError) as refused:
        train(**QUICK, export=tmp_path)
    assert "saved_model is not a directory" in str(refused.value)
    assert (tmp_path / "saved_model").read_text() == "mine"


def test_numbers_of_numpy_are_taken_and_home_is_found(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    config = TrainConfig(
        epochs=np.int64(3),
        seed=np.int32(1),
        checkpoint_dir="~/run é",
        learning_rate=np.float32(0.5),
    )
    assert config.checkpoint_dir == tmp_path / "run é"
    assert json.loads(json.dumps(config.fingerprint(9)))["seed"] == 1 and config.epochs == 3


def test_wrong_data_is_known_before_tensorflow_is_imported(tmp_path):
    code = (
        "import sys; from distlab.cli import main; "
        f"status = main(['train', '--full-data', '--data-folder', {str(tmp_path)!r}]); "
        "sys.exit(9 if 'tensorflow' in sys.modules else status)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "no prepared TFDS folder" in only_line(done.stderr)


def test_interrupt_while_the_command_is_read(monkeypatch, capsys):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "make_parser", interrupt)
    assert cli.main(["train"]) == 130
    assert only_line(capsys.readouterr().err) == "distlab: interrupted\n"


@pytest.mark.usefixtures("untested")
def test_train_in_another_thread_gives_the_same_weights(tf):
    found = {}
    settings = {**QUICK, "strategy": "mirrored", "replicas": 2}
    thread = threading.Thread(target=lambda: found.update(it=train(**settings)))
    thread.start()
    thread.join(300)
    assert found["it"].weights_checksum == train(**settings).weights_checksum


@pytest.mark.skipif(not os.path.exists(FULL), reason="no /dev/full here")
def test_full_disk_under_events(tf, capsys):
    assert cli.main(["train", *FLAGS, "--events", FULL]) == 2
    assert "--events /dev/full can't be written (No space" in only_line(capsys.readouterr().err)


def test_events_that_cannot_be_opened(tf, capsys, tmp_path):
    assert cli.main(["train", *FLAGS, "--events", str(tmp_path)]) == 2
    assert "Is a directory" in only_line(capsys.readouterr().err)


@pytest.mark.skipif(not os.path.exists(FULL), reason="no /dev/full here")
def test_full_disk_under_standard_output():
    with open(FULL, "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "distlab", "data"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
        )
    assert done.returncode == 2 and "No space left" in only_line(done.stderr)


def test_closed_standard_error_and_a_cluster_in_the_environment(tmp_path):
    """Neither a closed stream nor another program's TF_CONFIG may stop a single-machine run."""
    cluster = {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}
    config = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}})
    options = " ".join(FLAGS)
    command = f'"{sys.executable}" -m distlab train {options} --strategy mirrored --json 2>&-'
    done = subprocess.run(
        ["sh", "-c", command],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "TF_CONFIG": config},
    )
    assert done.returncode == 0 and parse_strictly(done.stdout)["replicas"] == 2


def test_another_keras_backend_is_one_line(tf, monkeypatch):
    import keras

    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(DistributedError, match="runs on jax.*Unset KERAS_BACKEND"):
        train(**QUICK)
