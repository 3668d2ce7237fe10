"""`distlab train` as a user of a shell meets it: real processes, real signals."""

import fcntl
import json
import os
import pty
import signal
import struct
import termios

from child_programs import events_of, run_distlab, start_distlab
from process_watch import wait_for

from distlab.cli import main

SMALL = ["--max-examples", "500", "--model", "mlp"]
KEYS = (
    "strategy replicas workers devices device_kinds all_reduce unused_gpus device_note dataset "
    "source examples loop global_batch_size epochs resumed_from skipped_checkpoints loss accuracy "
    "test_loss test_accuracy images_per_second seconds weights_checksum"
).split()


def distlab_train(*arguments):
    return run_distlab("train", *arguments)


def test_json_is_one_object_and_nothing_else_is_said():
    done = distlab_train(
        *"--strategy mirrored --replicas 4 --dataset fashion-mnist --loop custom".split(),
        *"--epochs 2 --global-batch-size 32 --json".split(),
        *SMALL,
    )
    assert done.returncode == 0 and done.stderr == ""
    report = json.loads(done.stdout)
    assert list(report) == KEYS
    assert report["strategy"] == "mirrored" and report["replicas"] == 4 and report["workers"] == 1
    assert report["dataset"] == "fashion-mnist" and report["examples"] == 500
    assert len(report["loss"]) == len(report["accuracy"]) == report["epochs"] == 2
    assert report["images_per_second"] > 0 and len(report["weights_checksum"]) == 64


def test_report_for_people_with_export_and_mixed_precision(tmp_path):
    done = distlab_train(
        *"--strategy central-storage --dataset mnist --loop fit --dtype mixed_bfloat16".split(),
        "--export",
        str(tmp_path),
        *SMALL,
    )
    where = "2 replicas: CPU:0, CPU:1 (logical CPU), all-reduce one-device\n"
    assert (done.returncode, done.stderr) == (0, f"distlab train: central-storage, {where}")
    assert where in done.stdout
    assert "mnist, 500 training examples" in done.stdout and "test:" in done.stdout
    assert (tmp_path / "model.keras").is_file() and (tmp_path / "saved_model").is_dir()


def test_a_tpu_that_is_not_there_is_one_line():  # beside bad_lines.txt: TensorFlow is asked
    done = distlab_train("--strategy", "tpu")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("distlab train: Strategy 'tpu' needs a TPU")


def test_stopped_by_a_signal_it_saves_and_the_next_run_goes_on(tmp_path):
    """By Ctrl-C, then the resumed run by SIGTERM: the next begins at the step that was saved."""
    arguments = "--model mlp --global-batch-size 50 --max-examples 2000".split()
    arguments += ["--checkpoint-dir", tmp_path / "c", "--events", tmp_path / "e", "--epochs"]
    stops = []
    for number in (signal.SIGINT, signal.SIGTERM):
        *resumed, where, said = stop(arguments, tmp_path / "e", number)
        assert resumed == [say_resumed(tmp_path / "c", each) for each in stops]
        assert where.startswith("distlab train: ")
        assert "stopped in epoch" in said and "to resume" in said
        stops.append(events_of(tmp_path / "e", "step")[-1])
    epochs = stops[-1]["epoch"] + 1
    done = run_distlab("train", *arguments, epochs, "--json", status=0)
    report = json.loads(done.stdout)
    assert len(report["loss"]) == epochs
    saved = str(tmp_path / "c" / f"train-{stops[-1]['step']}")
    assert (report["resumed_from"], report["skipped_checkpoints"]) == (saved, [])
    assert done.stderr == say_resumed(tmp_path / "c", stops[-1]) + "\n"
    starts = events_of(tmp_path / "e", "start")
    assert [start["first_step"] for start in starts] == [0, *(step["step"] for step in stops)]


def stop(arguments, events, number):
    """Stop a run by a signal once it has trained an epoch; return the lines that it said."""
    before = len(events_of(events, "epoch"))
    process = start_distlab("train", *arguments, 6000)
    wait_for(lambda: len(events_of(events, "epoch")) > before, 240)
    process.send_signal(number)
    said = process.communicate(timeout=240)[1]
    assert process.returncode == 128 + number
    return said.splitlines()


def say_resumed(folder, step):
    number = step["step"]
    return f"distlab train: resumed from {folder}/train-{number}, step {number}"


def test_progress_bar_on_a_terminal():
    """On a terminal standard error shows a bar; standard output stays the report alone."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 24, 100, 0, 0))
    process = start_distlab("train", *SMALL, "--epochs", "1", "--json", stderr=terminal)
    os.close(terminal)
    shown = b""
    while True:
        try:
            piece = os.read(controller, 4096)
        except OSError:  # the other end is closed
            break
        shown += piece
    output = process.communicate(timeout=240)[0]
    os.close(controller)
    assert process.returncode == 0 and json.loads(output)["epochs"] == 1
    assert b"step" in shown and b"epoch 1, loss" in shown


def test_settings_come_from_a_file_and_options_after_it_win(tmp_path, monkeypatch):
    taken = []
    monkeypatch.setattr("utils.training.train", lambda config, **others: taken.append(config))
    path = tmp_path / "best.json"
    path.write_text('{"learning_rate": 0.5, "global_batch_size": 128, "optimizer": "momentum"}')
    main(["train", "--learning-rate", "1", "--config", str(path), "--global-batch-size", "256"])
    [config] = taken
    assert (config.optimizer, config.learning_rate) == ("momentum", 0.5)
    assert (config.global_batch_size, config.epochs) == (256, 2)
