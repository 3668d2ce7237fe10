"""Training across real processes: the same numbers as one process, whatever the loop.

One warm process forks every task of this file, and each cluster trains several jobs one
after the other.
"""

import functools
import json
import os
import re
import tempfile
from collections import Counter
from itertools import combinations, product

import numpy as np
import pytest
from needs import EVERYTHING
from test_training import assert_same_weights, plan_steps, train_by_hand, train_on_examples
from untested import leave_out_test_data

from utils.cluster import ClusterError, LocalCluster, make_launcher

EPOCHS, BATCH = 2, 64
EXACT = {"dtype": "float64", "optimizer": "sgd", "model": "mlp", "epochs": EPOCHS}
UNEVEN = {**EXACT, "max_examples": 202, "global_batch_size": BATCH}  # the last batch has 10
# workers, replicas of each; test_own_data has two of two
GROUPS = [(2, 1), (2, 2), (3, 1), (3, 2)]
LOOPS = ("custom", "fit")
CHOSEN = [("file", (2, 1), "fit"), ("file", (3, 2), "custom"), ("off", (2, 1), "fit")]
RUNS = list(product(("file", "off"), GROUPS, LOOPS)) if EVERYTHING else CHOSEN
# which loop goes on, in which group, from where two workers were stopped
GOING_ON = list(product(LOOPS, GROUPS)) if EVERYTHING else [("custom", (3, 1))]


class Clusters:
    """Clusters of all sizes on one warm process."""

    def __init__(self):
        self.launcher = make_launcher()

    def start(self, workers, replicas, function, *arguments, ps=0, **settings):
        cluster = LocalCluster(workers, ps, replicas, launcher=self.launcher)
        return cluster.start(function, *arguments, **settings)

    def run(self, *arguments, **settings):
        job = self.start(*arguments, **settings)
        try:
            return job.wait(300)
        finally:
            job.stop()


@pytest.fixture(scope="module")
def clusters():
    clusters = Clusters()
    yield clusters
    clusters.launcher.close()


def train_jobs(jobs):
    """In a worker: train job after job; return for each its report and what it read."""
    from utils.training import train
    from utils.training.input_feed import ReadLog

    leave_out_test_data()
    logs = {name: ReadLog() for name in jobs}
    reports = {
        name: train(strategy="multi-worker", read_log=logs[name], **job)
        for name, job in jobs.items()
    }
    return {name: (report, logs[name].steps) for name, report in reports.items()}


@pytest.fixture(scope="module")
def train_on(clusters):
    """Return what each worker of a group got from every job of `RUNS` with its loops."""

    @functools.cache
    def train_on(group):
        jobs = {
            (policy, loop): {**UNEVEN, "auto_shard": policy, "loop": loop}
            for policy, place, loop in RUNS
            if place == group
        }
        return clusters.run(*group, train_jobs, jobs)

    return train_on


def by_hand():
    """Return weights and epoch means of one process."""
    return train_by_hand(UNEVEN["max_examples"], BATCH, EPOCHS)


@pytest.mark.parametrize("policy, group, loop", RUNS)
def test_file_and_off_equal_one_process_fed_what_was_read(train_on, policy, group, loop):
    workers, _ = group
    outcomes = [outcome[policy, loop] for outcome in train_on(group)]
    reads = [steps for _, steps in outcomes]
    unions = [sum(parts, []) for parts in zip(*reads, strict=True)]
    weights, losses = train_on_examples(unions, EPOCHS)
    for report, _ in outcomes:
        assert_same_weights(report, weights)
        np.testing.assert_allclose(report.loss, losses, atol=1e-5)
    times = Counter(sum(unions, []))
    assert set(times) == set(range(202))
    assert set(times.values()) == {EPOCHS * (workers if policy == "off" else 1)}
    if policy == "file":
        owners = [set(sum(steps, [])) for steps in reads]
        assert sum(map(len, owners)) == 202, "each example has one worker, in both epochs"


def test_the_policies_do_not_train_the_same(train_on):
    """Were they the same, the tests above couldn't tell one from another."""
    outcome = train_on((2, 1))[0]
    ends = [by_hand()[0], *(outcome[policy, "fit"][0].weights for policy in ("file", "off"))]
    for one, two in combinations(ends, 2):
        apart = [np.abs(a - b).max() for a, b in zip(one, two, strict=True)]
        assert max(apart) > 1e-6


# ---- Keras


def fit_plainly(mend):
    """In a worker: Keras's own fit and evaluate, plain; return weights, history, evaluation."""
    import keras
    import tensorflow as tf

    from utils.keras_multi_worker import patch_keras_fit
    from utils.training.input_feed import set_auto_shard

    alone = not os.environ.get("TF_CONFIG")
    said = patch_keras_fit() if mend else ()
    strategy = tf.distribute.get_strategy()
    if not alone:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    inputs = np.random.default_rng(0).normal(size=(48, 5))
    data = tf.data.Dataset.from_tensor_slices((inputs, np.arange(48) % 3)).batch(12)
    data = set_auto_shard(data, "data")
    with strategy.scope():
        layers = [
            keras.layers.Dense(7, "tanh", dtype="float64"),
            keras.layers.Dense(3, dtype="float64"),
        ]
        model = keras.Sequential([keras.Input((5,), dtype="float64"), *layers])
        model.set_weights(
            [
                np.full(w.shape, 0.1) + np.arange(w.size).reshape(w.shape) / 50
                for w in model.get_weights()
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, dtype="float64")
        model.compile(keras.optimizers.SGD(0.1), loss, metrics=["accuracy"])
    history = model.fit(data, epochs=3, verbose=0, shuffle=False).history
    again = patch_keras_fit() if mend else ()
    return model.get_weights(), history, model.evaluate(data, verbose=0), said, again


@pytest.fixture(scope="module")
def fitted_plainly(tf):
    return fit_plainly(False)


def test_keras_fit_with_the_mend_equals_one_process(clusters, fitted_plainly):
    """The day Keras needs no mend, a row of test_strategies fails: see `BROKEN_VERSIONS`."""
    weights, history, evaluation, _, _ = fitted_plainly
    for got in clusters.run(2, 1, fit_plainly, True):
        for mine, theirs in zip(got[0], weights):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-9)
        for name, values in history.items():
            np.testing.assert_allclose(got[1][name], values, atol=1e-6)
        np.testing.assert_allclose(got[2], evaluation, atol=1e-6)
        assert len(got[3]) == 2 and "_maybe_symbolic_build" in got[3][0] and got[4] == ()


def test_the_mend_leaves_other_versions_and_strategies_alone(tf, fitted_plainly, monkeypatch):
    from keras.src.backend.tensorflow import trainer

    from utils import keras_multi_worker as mends

    names = trainer.TensorFlowTrainer._maybe_symbolic_build, trainer.reduce_per_replica
    monkeypatch.setattr(mends, "BROKEN_VERSIONS", ("3.0.0",))
    [said] = mends.patch_keras_fit()
    assert "left unchanged" in said and "3.0.0" in said
    assert names == (trainer.TensorFlowTrainer._maybe_symbolic_build, trainer.reduce_per_replica)
    monkeypatch.undo()
    for owner, name in (
        (trainer.TensorFlowTrainer, "_maybe_symbolic_build"),
        (trainer, "reduce_per_replica"),
    ):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    monkeypatch.setattr(trainer, mends._MARK, False, raising=False)
    after = fit_plainly(True)
    assert len(after[3]) == 2 and after[1] == fitted_plainly[1]
    assert not mends.has_several_workers(tf.distribute.get_strategy())


# ---- devices, checkpoints, the chief


def count_replicas(replicas):
    import tensorflow as tf

    from utils.strategies import make_strategy

    plain = replicas == "plain"
    strategy = (
        tf.distribute.MultiWorkerMirroredStrategy()
        if plain
        else make_strategy("multi-worker", replicas)
    )
    is_known = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
    return strategy.num_replicas_in_sync, is_known


def test_all_devices_of_a_worker_are_replicas(clusters):
    """TensorFlow itself takes one CPU device of each worker; with no number, see `talk`."""
    assert clusters.run(1, 2, count_replicas, "plain") == [(1, True)]
    assert clusters.run(1, 2, count_replicas, 1) == [(1, True)]
    assert clusters.run(1, 1, count_replicas, 2) == [(2, True)]
    with pytest.raises(ClusterError, match="This worker has 2 CPU devices and needs 3"):
        clusters.run(1, 2, count_replicas, 3)


def sum_with_a_late_leader(times):
    """In a worker: ask for the strategy again and again; the leader comes last each time."""
    import time

    import tensorflow as tf

    from utils.strategies import make_strategy

    sums = []
    for number in range(times):
        if number and json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 0:
            time.sleep(1)  # the others already wait in the next collective
        strategy = make_strategy("multi-worker")
        ones = strategy.experimental_distribute_values_from_function(lambda _: tf.constant(1.0))
        sums.append(float(strategy.reduce("SUM", ones, axis=None)))
    return sums


def talk():
    """In a worker: say who it is, and what it hears from the others."""
    from utils.strategies import make_strategy
    from utils.training.worker_group import WorkerGroup

    group = WorkerGroup(make_strategy("multi-worker"))
    mine = {"who": group.name, "text": "é" * group.index}
    heard = group.gather(mine), group.broadcast([group.index, None, "chief"])
    flags = group.any(group.index == 2), group.any(False)
    group.barrier()
    return group.is_chief, group.workers, group.replicas_per_worker, heard, flags


def differ(name):
    """In a worker: compare facts that differ in one name."""
    from utils.errors import RunError
    from utils.strategies import make_strategy
    from utils.training.worker_group import WorkerGroup

    group = WorkerGroup(make_strategy("multi-worker"))
    group.compare({"same": 1})
    try:
        group.compare({"same": 1, name: group.index // 2, **({"extra": 0} if group.index else {})})
    except RunError as error:
        return str(error)


@pytest.fixture(scope="module")
def told(clusters):
    """What each of three workers of two replicas got from the functions above, one after another.

    Each asks for the strategy anew, as a worker that trains several times does.
    """
    outcomes = clusters.run(3, 2, lambda: (sum_with_a_late_leader(3), talk(), differ("tf_version")))
    return [list(outcome) for outcome in zip(*outcomes)]


def test_one_worker_may_train_several_times(told):
    """A second strategy would start the leader's collectives anew: the others' would fail."""
    assert told[0] == [[6.0] * 3] * 3


def test_workers_hear_from_each_other(told):
    everyone = [{"who": f"worker {i}", "text": "é" * i} for i in range(3)]
    for index, said in enumerate(told[1]):
        assert said == (index == 0, 3, 2, (everyone, [0, None, "chief"]), (True, False))


def test_what_differs_between_workers_is_named_on_all_of_them(told):
    one, *others = told[2]
    assert one.startswith(
        "The workers weren't started alike: extra is missing on worker 0, 0 on worker 1, 0 on "
        "worker 2; tf version is 0 on worker 0, 0 on worker 1, 1 on worker 2. Start them all"
    )
    assert others == [one, one]


def train_in_parts(folder, temporary, parts):
    """In a worker: train part after part, each with settings of its own.

    A part says what worker 1 answers when it is asked whether to stop; all others never want to.
    Returns what each part came to, and what was read in all.
    """
    from utils.errors import InputError
    from utils.events import report
    from utils.training import TrainingStopped, train
    from utils.training.input_feed import ReadLog

    task = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    ends, log, tempfile.tempdir = [], ReadLog(), temporary

    def send(event):
        fields = {k: v for k, v in event.items() if k not in ("event", "time")}
        report(event["event"], **fields, index=task)

    for answers, changes in parts:
        own = iter(answers if task == 1 else ())
        try:
            end = train(
                strategy="multi-worker",
                checkpoint_dir=folder,
                checkpoint_every=2,
                should_stop=functools.partial(next, own, False),
                on_event=send,
                read_log=log,
                **{**UNEVEN, **changes},
            )
        except TrainingStopped as stopped:
            end = stopped.step
        except InputError as error:
            end = str(error)
        ends.append(end)
    return ends, log.steps


@pytest.mark.parametrize("loop, group", GOING_ON)
def test_all_workers_stop_together_and_go_on_from_the_chiefs_checkpoint(
    clusters, tmp_path, loop, group
):
    """One of two workers is asked to stop, under either loop; a group of another size goes on.

    On every worker, its weights are those of one process to 1e-9, and each step reads the
    examples of the same batch. Another job's settings are refused by the chief.
    """
    folder, export = str(tmp_path / "c"), tmp_path / "e"
    aside = tmp_path / "aside"  # where those that aren't the chief save
    aside.mkdir()
    # the custom loop asks once every two steps
    parts = [([True], {"loop": "custom"}), ([False, False, True], {"loop": "fit"})]
    job = clusters.start(2, 1, train_in_parts, folder, str(aside), parts)
    stopped = job.wait(300)
    assert [ends for ends, _ in stopped] == [[2, 5]] * 2 and not list(aside.glob("not-chief-*"))
    events = list(job.events())
    assert {event["index"] for event in events} == {0}, "the chief alone reports"
    assert [e["step"] for e in events if e["event"] == "checkpoint"] == [2, 4, 5]
    assert events[-1]["event"] == "checkpoint"
    assert sorted(os.listdir(tmp_path)) == ["aside", "c"]
    assert "train-5.index" in os.listdir(folder)
    parts = [((), {"loop": loop, "export": str(export)}), ((), {"loop": loop, "seed": 1})]
    ended = clusters.run(*group, train_in_parts, folder, str(aside), parts)
    weights, losses = by_hand()
    for (report, refusal), _ in ended:
        assert_same_weights(report, weights)
        np.testing.assert_allclose(report.loss, losses, atol=1e-5)
        assert (report.workers, report.replicas) == group
        assert report.test_loss == ended[0][0][0].test_loss
        assert re.search("checkpoint_dir .* seed=0", refusal)
    assert not list(aside.glob("not-chief-*"))
    assert (export / "model.keras").is_file() and (export / "saved_model").is_dir()
    unions = [
        sum(reads, [])
        for group in (stopped, ended)
        for reads in zip(*(steps for _, steps in group), strict=True)
    ]
    for union, step in zip(unions, plan_steps(202, BATCH, EPOCHS), strict=True):
        assert Counter(union) == Counter(step.tolist())


def test_a_loss_that_is_not_finite_is_null_in_a_tasks_events(clusters):
    def diverge():
        from utils.events import report

        report("step", loss=float("nan"), parts=[float("inf"), 1.0])

    job = clusters.start(1, 1, diverge)
    [event] = list(job.events())
    job.wait(300)
    assert event["loss"] is None and event["parts"] == [None, 1.0]


# ---- parameter servers


def coordinate(settings):
    from utils.events import report
    from utils.training import train

    def send(event):
        report(event["event"], step=event.get("step", 0))

    return train(strategy="parameter-server", on_event=send, **settings)


def test_one_worker_on_parameter_servers_trains_as_one_process(clusters):
    """With one worker there is nobody to be stale against."""
    weights, losses = by_hand()
    report = clusters.run(1, 1, coordinate, UNEVEN, ps=2)
    assert_same_weights(report, weights)
    np.testing.assert_allclose(report.loss, losses, atol=1e-5)
    assert (report.strategy, report.workers, report.replicas) == ("parameter-server", 1, 1)


def test_two_workers_on_parameter_servers_learn_and_go_on(clusters, tmp_path):
    settings = {"model": "mlp", "max_examples": 2000, "checkpoint_dir": str(tmp_path / "c")}
    job = clusters.start(2, 1, coordinate, {**settings, "epochs": 2}, ps=1)
    first = job.wait(300)
    assert first.workers == 2 and len(first.loss) == 2 and first.loss[1] < first.loss[0]
    assert [e["event"] for e in job.events() if e["event"] != "step"] == (
        ["start"] + ["epoch", "checkpoint"] * 2 + ["end"]
    )
    second = clusters.run(2, 1, coordinate, {**settings, "epochs": 3}, ps=1)
    assert second.loss[:2] == first.loss and second.loss[2] < first.loss[1]
    assert second.test_accuracy > 0.7
