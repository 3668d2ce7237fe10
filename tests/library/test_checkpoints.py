"""Checkpoints: a run that was cut, stopped or damaged ends with the uninterrupted run's weights."""

import numpy as np
import pytest
from needs import EVERYTHING

from utils.errors import DistributedError
from utils.training import TrainingStopped, train

pytestmark = pytest.mark.usefixtures("untested")
# at checkpoints, at ends of epochs, before and behind them (`fit`, which starts slowly: at three);
# `make test-all` cuts at every step
CUTS = range(1, 12) if EVERYTHING else [1, 3, 4, 6, 8, 10]
EXACT = {"dtype": "float64", "optimizer": "sgd", "epochs": 3, "max_examples": 202, "model": "mlp"}


@pytest.fixture(scope="module")
def whole(tf):
    """The report of a custom loop's run that nothing disturbs."""
    return train(**EXACT, global_batch_size=64)


class Cut(Exception):
    """The power cut of the tests below."""


def cut_at(step):
    def listen(event):
        if event["event"] == "step" and event["step"] >= step:
            raise Cut

    return listen


@pytest.mark.parametrize(
    "loop, steps", [("custom", CUTS), ("fit", CUTS if EVERYTHING else [4, 7, 11])]
)
def test_resumed_run_equals_the_uninterrupted_one(tf, tmp_path, loop, steps):
    """4 steps an epoch, 3 epochs, a checkpoint every 3 steps; the power is cut again and again."""
    settings = {**EXACT, "optimizer": "adam", "loop": loop, "global_batch_size": 64}
    if loop == "fit":  # two replicas go on with the custom loop in test_scenes
        settings |= {"strategy": "mirrored", "replicas": 2}
    whole = train(**settings)
    saved = {"checkpoint_dir": tmp_path, "checkpoint_every": 3}
    for step in steps:  # each start goes on from what the cut before it has left
        with pytest.raises(Cut):
            train(on_event=cut_at(step), **settings, **saved)
    resumed = train(**settings, **saved)
    assert int(resumed.resumed_from.rpartition("-")[2]) >= max(steps) - 3
    assert resumed.weights_checksum == whole.weights_checksum
    np.testing.assert_allclose(resumed.loss, whole.loss, rtol=1e-6)
    np.testing.assert_allclose(resumed.accuracy, whole.accuracy, rtol=1e-6)


@pytest.mark.parametrize("loop", ["custom", "fit"])
def test_stop_saves_at_once_and_nothing_is_trained_twice(whole, tmp_path, loop):
    settings = {**EXACT, "loop": loop, "global_batch_size": 64, "checkpoint_dir": tmp_path}
    asked = iter([False, False, False, False, False, True])
    seen = []
    with pytest.raises(TrainingStopped) as stopped:
        train(**settings, checkpoint_every=1, should_stop=lambda: next(asked))
    assert stopped.value.step == 6 and str(tmp_path) in str(stopped.value)
    report = train(**settings, on_event=seen.append)
    assert next(e for e in seen if e["event"] == "start")["first_step"] == 6
    if loop == "fit":
        whole = train(**{**settings, "checkpoint_dir": None})
    assert report.weights_checksum == whole.weights_checksum


def test_checkpoint_survives_a_change_of_strategy_and_loop(whole, tmp_path):
    settings = {**EXACT, "global_batch_size": 64}
    train(**{**settings, "epochs": 1}, strategy="mirrored", replicas=2, checkpoint_dir=tmp_path)
    train(
        **{**settings, "epochs": 2}, strategy="central-storage", loop="fit", checkpoint_dir=tmp_path
    )
    report = train(**settings, strategy="one-device", checkpoint_dir=tmp_path)
    for got, wanted in zip(report.weights, whole.weights):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-9)
    np.testing.assert_allclose(report.loss, whole.loss, atol=1e-6)
    again = train(**settings, checkpoint_dir=tmp_path)
    assert again.weights_checksum == report.weights_checksum and again.images_per_second is None


def test_checkpoint_of_another_job_is_refused(tf, tmp_path):
    settings = {**EXACT, "epochs": 1, "global_batch_size": 64, "checkpoint_dir": tmp_path}
    train(**settings)
    for change in ({"seed": 1}, {"max_examples": 200}, {"optimizer": "adam"}, {"dataset": "mnist"}):
        with pytest.raises(DistributedError, match="was made with"):
            train(**{**settings, **change})


def test_damaged_checkpoint_is_skipped(whole, tmp_path):
    settings = {**EXACT, "global_batch_size": 64, "checkpoint_dir": tmp_path}
    train(**settings)
    newest = next(tmp_path.glob("train-12.data*"))
    newest.write_bytes(newest.read_bytes()[: newest.stat().st_size // 2])
    seen = []
    report = train(**settings, on_event=seen.append)
    restored = seen[0]
    assert restored["event"] == "restore" and restored["step"] == 8
    assert restored["path"] == report.resumed_from == str(tmp_path / "train-8")
    [reason] = restored["skipped_checkpoints"]
    assert report.skipped_checkpoints == (reason,) and reason.startswith("train-12: ")
    words = f"resumed from {tmp_path}/train-8, step 8\nskipped the damaged checkpoint train-12"
    assert words in str(report)
    assert next(e for e in seen if e["event"] == "start")["first_step"] == 8
    assert report.weights_checksum == whole.weights_checksum
    for piece in tmp_path.glob("train-*.data*"):
        piece.write_bytes(b"")
    with pytest.raises(DistributedError, match="none of"):
        train(**settings)
