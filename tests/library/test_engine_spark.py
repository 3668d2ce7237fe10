"""Spark: the same numbers as one process, restarts after a kill, nothing left behind."""

import pytest
from engine_checks import (
    check_killed_launcher,
    check_program,
    check_restart,
    check_same_weights,
    kill,
    open_engine,
    train_alone,
)
from test_launchers import test_lines_and_events_come_in_order_then_the_result_then_the_end  # noqa: F401

pytestmark = pytest.mark.timeout(900)  # an engine's start takes minutes where others compute


@pytest.fixture(scope="module")
def launcher():
    with open_engine("spark") as launcher:
        yield launcher


@pytest.fixture(scope="module")
def alone():
    return train_alone()


def test_the_weights_are_those_of_one_process(launcher, alone):
    check_same_weights(launcher, alone)


def test_a_killed_worker_starts_again_and_goes_on_from_the_checkpoint(launcher, alone):
    check_restart(launcher, alone, lambda there: kill(there["starter"]))


def test_a_program_runs_starts_again_and_is_reported(launcher, tmp_path, monkeypatch):
    check_program(launcher, tmp_path, monkeypatch)


def test_nothing_outlives_a_launcher_that_is_killed(tmp_path):
    with open_engine("spark"):
        check_killed_launcher("spark", tmp_path)
