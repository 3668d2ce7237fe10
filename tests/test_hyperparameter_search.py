"""examples/hyperparameter_search.py: several workers, some of which are killed in a trial."""

import json
import re
import signal
import time
from contextlib import ExitStack, suppress
from types import SimpleNamespace

import pytest
from needs import EVERYTHING, need_packages
from test_examples import SECONDS, load_program, start

pytestmark = [pytest.mark.slow(40), pytest.mark.more_in_all]
need_packages("Optuna", "optuna")
PROGRAM = "hyperparameter_search.py"
WORKERS, KILLS = (6, 3) if EVERYTHING else (3, 1)


def list_words(folder, *words):
    return [PROGRAM, "--folder", folder, "--epochs", "2", *words]


def read_trials(folder):
    """Return what the journal says of each trial: params, state, attributes, by number."""
    import optuna
    from optuna.storages.journal import JournalFileBackend

    storage = optuna.storages.JournalStorage(JournalFileBackend(str(folder / "journal.log")))
    return optuna.load_study(study_name="search", storage=storage).trials


@pytest.fixture(scope="module")
def searched(tmp_path_factory, data_file):
    """Two folders that one worker each has searched, the second one in two parts, of which a
    full disk ended the first one in the middle of a line.
    """
    folder = tmp_path_factory.mktemp("searched")
    for name, parts in (("whole", [5]), ("parts", [2, 5])):
        for trials in parts:
            words = list_words(folder / name, "--trials", trials)
            with start(*words, data_file=data_file, folder=folder) as running:
                lines = running.end()
            if trials == 2:
                with (folder / name / "journal.log").open("a") as journal:
                    journal.write('{"op_code": 5, "wor')
    assert json.loads(lines[-1])["accuracy"] > 0.3
    return folder


def test_the_same_seed_gives_the_same_trials_on_one_worker(searched):
    whole, parts = (read_trials(searched / name) for name in ("whole", "parts"))
    assert len(whole) == 5 and len({str(trial.params) for trial in whole}) == 5
    assert [(t.params, t.state, t.values) for t in whole] == [
        (t.params, t.state, t.values) for t in parts
    ]


def test_the_best_settings_are_ones_that_training_takes(searched, monkeypatch):
    from distlab.cli import main

    taken = []
    monkeypatch.setattr("utils.training.train", lambda config, **others: taken.append(config))
    assert main(["train", "--config", str(searched / "whole" / "best.json")]) == 0
    complete = [t for t in read_trials(searched / "whole") if t.state.name == "COMPLETE"]
    best = max(complete, key=lambda trial: trial.value)
    [config] = taken
    assert (config.model, config.optimizer, config.epochs) == ("cnn", "momentum", 2)
    assert config.learning_rate == best.params["learning_rate"]
    assert config.global_batch_size == best.params["global_batch_size"]
    assert config.warm_up_steps == best.params["warm_up_steps"]
    assert (searched / "whole" / "trials.png").read_bytes().startswith(b"\x89PNG")


def test_the_model_is_the_one_that_training_builds():
    """So that the best settings mean the same there."""
    from utils.models import build_cnn
    from utils.training.state import make_rate

    program = load_program(PROGRAM)
    ours, theirs = build_cnn(), program.build_model(0.1, 0)
    assert [w.shape for w in ours.weights] == [w.shape for w in theirs.weights]
    assert theirs.optimizer.momentum == 0.9
    rise, same = program.build_model(0.1, 50).optimizer._learning_rate, make_rate(0.1, 50)
    assert rise.get_config() == same.get_config() and type(rise) is type(same)


def test_settings_that_differ_are_refused(searched, data_file, tmp_path):
    program = load_program(PROGRAM)

    def refuse(folder):
        options = SimpleNamespace(folder=folder, seed=3, epochs=2, max_examples=None)
        with pytest.raises(SystemExit) as refused:
            program.open_study(options)
        return str(refused.value)

    line = refuse(searched / "whole")
    assert "'seed': 0" in line and line.endswith("Name another folder")
    (tmp_path / "journal.log").write_text("{\n{\n")
    assert refuse(tmp_path).startswith(f"--folder {tmp_path}: journal.log is damaged")
    with start(*list_words("/proc/search"), data_file=data_file, folder=tmp_path) as running:
        assert re.match("--folder /proc/search: ", running.end(status=1)[-1])
    assert len(read_trials(searched / "whole")) == 5


@pytest.mark.parametrize(
    ("option", "value", "range_of_it"),
    [
        ("--trials", "0", "1 to 1,000,000"),
        ("--epochs", "-1", "1 to 1,000,000"),
        ("--max-examples", "5", "10 to 1,000,000,000"),
        ("--seed", "99999999999", "0 to 1,000,000"),
    ],
)
def test_numbers_that_make_no_search_are_refused(tmp_path, monkeypatch, option, value, range_of_it):
    words = [PROGRAM, "--folder", str(tmp_path / "search"), option, value]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit) as refused:
        load_program(PROGRAM).main()
    assert str(refused.value) == f"{option} must be {range_of_it}, got {value}"
    assert not (tmp_path / "search").exists()


def wait_for_trials(folder, count):
    """Return the running trials, once there are `count` of them."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        with suppress(KeyError, FileNotFoundError):  # folder, journal and study come one by one
            found = [t for t in read_trials(folder) if t.state.name == "RUNNING" and t.params]
            if len(found) == count:
                return found
        time.sleep(0.05)
    raise AssertionError(f"no {count} trials run at the same time")


def test_a_killed_worker_loses_its_trial_only_and_it_is_tried_again(data_file, tmp_path):
    folder, trials = tmp_path / "search", 2 * WORKERS
    words = list_words(folder, "--trials", trials)
    in_first_trial = (tmp_path / "killed", 1, "keras:Model", "fit")
    settings = {"data_file": data_file, "folder": tmp_path, "held": in_first_trial}
    with ExitStack() as stack:
        workers = [stack.enter_context(start(*words, **settings)) for _ in range(WORKERS)]
        wait_for_trials(folder, WORKERS)
        for victim in workers[:KILLS]:
            victim.send(signal.SIGKILL)
            victim.process.wait(SECONDS)
        (tmp_path / "killed").touch()
        [worker.end() for worker in workers[KILLS:]]
    found = read_trials(folder)
    failed = [trial for trial in found if trial.state.name == "FAIL"]
    again = [trial for trial in found if "again" in trial.user_attrs]
    assert len(failed) == len(again) == KILLS and len(found) == trials + KILLS
    assert {trial.user_attrs["again"] for trial in again} == {trial.number for trial in failed}
    for trial in again:
        assert trial.params == found[trial.user_attrs["again"]].params
    ended = [trial for trial in found if trial.state.name in ("COMPLETE", "PRUNED")]
    assert len(ended) == len({str(trial.params) for trial in ended}) == trials


def test_a_trial_that_ends_while_another_worker_looks_is_kept(tmp_path, monkeypatch):
    """Its worker says how it ended, and lets go of its lock, after the states were read."""
    program = load_program(PROGRAM)
    options = SimpleNamespace(folder=tmp_path, seed=0, epochs=1, max_examples=None, trials=2)
    study = program.open_study(options)
    first, lock = program.take_trial(study, options)

    def is_free(self):
        study.tell(first, 0.5)
        lock.file.close()
        return True

    monkeypatch.setattr(program.DyingLock, "is_free", is_free)
    second, _ = program.take_trial(study, options)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "RUNNING"]
    assert second.number == 1 and "again" not in second.user_attrs


@pytest.mark.parametrize("step", ["enqueue_trial", "tell"])
def test_who_dies_while_it_gives_up_a_trial_loses_and_doubles_none(tmp_path, monkeypatch, step):
    program = load_program(PROGRAM)
    options = SimpleNamespace(folder=tmp_path, seed=0, epochs=1, max_examples=None, trials=1)
    study = program.open_study(options)
    _, lock = program.take_trial(study, options)
    lock.file.close()

    def die(*arguments, **keywords):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(study, step, die)
        program.take_trial(study, options)
    again, _ = program.take_trial(study, options)
    assert [trial.state.name for trial in study.trials] == ["FAIL", "RUNNING"]
    assert again.user_attrs == {"attempt": 2, "again": 0}
