"""Lab 18's workers: what is found doesn't depend on which of them the machine lets run."""

import os
import signal
import threading

import numpy as np
import pytest
from lab_runner import load_answers

from distlab.labs.lab18.judge import expect_work
from distlab.labs.lab18.shard_runs import ShardTrial, try_work


@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize(
    ("way", "how"), [("no-claim", "together"), ("no-claim", "killed"), ("looked-once", "killed")]
)
def test_a_mistake_is_found_although_a_worker_is_late(monkeypatch, way, how, late):
    """The first or the second one stands still for so long that the other could do everything."""
    start = ShardTrial.start

    def start_late(trial, *given, **more):
        number, process = len(trial._workers), start(trial, *given, **more)
        if number == late:
            os.kill(process, signal.SIGSTOP)
            threading.Timer(0.7, os.kill, [process, signal.SIGCONT]).start()
        return process

    monkeypatch.setattr(ShardTrial, "start", start_late)
    space = {}
    exec(load_answers("lab18").WRONG["work"][way], space)
    assert try_work(space["work"], how, 11) == expect_work(how, 11, way)


def test_a_worker_that_predicts_without_end_is_ended(monkeypatch):
    monkeypatch.setattr("distlab.labs.lab18.shard_runs.MAX_CALLS", 50)

    def work(paths, output, predict):
        while True:
            predict(np.load(paths[0])[:16])

    found = try_work(work, "together", 11)
    assert found["all workers returned"] is False and found["predicted again"] == "too much"


def test_a_file_that_another_worker_moved_is_no_riddle():
    def work(paths, output, predict):
        os.replace(f"{output}/part.npy", f"{output}/there.npy")

    with pytest.raises(AssertionError, match="did another worker move it"):
        try_work(work, "together", 11)
