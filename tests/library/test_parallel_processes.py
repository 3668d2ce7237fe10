"""Stages in worker processes: the same gradients over sockets."""

import json
import os

import numpy as np
import pytest
from parallel_models import assert_equal_step, make_batch
from process_watch import Held, wait_for

from utils.cluster import ClusterError, LocalCluster
from utils.errors import DistributedError
from utils.measure import array_bytes
from utils.models import build_mlp
from utils.parallel.processes import Wire, join_reports, read_place, run_stage
from utils.parallel.stage import Mailbox, Rules
from utils.schedules import make_schedule, read_schedule
from utils.simulate.pipeline import StageTimes, simulate_pipeline


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(workers=2) as cluster:
        yield cluster


def build_model():
    """A model that a worker process can build: it doesn't see the tests' modules."""
    return build_mlp(dtype="float64", hidden_units=10)


def run_on(cluster, schedule, images, labels):
    costs = [0.1, 3.0, 1.0]
    arguments = (build_model, costs, schedule, images, labels)
    return cluster.run(run_stage, *arguments, echo=False, timeout=300)


@pytest.mark.parametrize("name", ["1f1b", "gpipe"])
def test_two_processes_give_the_unsplit_gradients(cluster, name):
    schedule = make_schedule(name, 2, 4)
    images, labels = make_batch(16)
    reports = run_on(cluster, schedule, images, labels)
    step, model = join_reports(schedule, reports), build_model()
    assert_equal_step(step, model, images, labels)
    assert len({report.process for report in reports} | {os.getpid()}) == 3
    weights = [array_bytes([v]) for v in model.trainable_variables]
    assert [report.parameter_bytes for report in reports] == [sum(weights[:2]), sum(weights[2:])]
    boundary = 16 * 10 * 8  # ten hidden values of every example, there and back
    assert step.traffic.count_links() == {
        ("worker 0", "worker 1"): boundary,
        ("worker 1", "worker 0"): boundary,
    }
    assert all(boundary < report.wire_bytes < boundary + 4 * 100 for report in reports)
    simulated = simulate_pipeline(schedule, StageTimes(1, 1, 1))
    assert step.peak_activations_per_stage == simulated.peak_activations_per_stage


def test_a_wrong_number_of_workers_is_one_line(cluster):
    images, labels = make_batch(4)
    with pytest.raises(ClusterError, match="got 2 workers for 3 stages"):
        run_on(cluster, make_schedule("1f1b", 3, 2), images, labels)


def test_what_cannot_run_is_refused_before_anything_is_sent(monkeypatch):
    spec = {"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(spec))
    images, labels = make_batch(4)
    stuck = read_schedule([[("F", 0), ("BW", 0)], [("BW", 0), ("F", 0)]], 1)
    whole = make_schedule("1f1b", 2, 2)
    for schedule, rules, says in (
        (stuck, None, "comes before"),
        (make_schedule("1f1b", 2, 5), None, "at most the 4 examples, got 5"),
        (whole, Rules(learning_rate=0.1), "learning_rate must be left out"),
    ):
        with pytest.raises(DistributedError, match=says):
            run_stage(build_model, [0.1, 3.0, 1.0], schedule, images, labels, rules)


def test_without_a_cluster_it_says_so(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(DistributedError, match="got 0 workers for 2 stages"):
        read_place(2)
    spec = {"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(spec))
    assert read_place(2) == (["a:1", "b:2"], 1)


def test_arrays_arrive_as_they_were_sent(tf):
    from utils.tf_config import pick_free_ports

    addresses = [f"127.0.0.1:{port}" for port in pick_free_ports(2)]
    boxes = [Mailbox(), Mailbox()]
    arrays = [np.arange(6.0).reshape(2, 3), np.zeros((0, 4), np.float32), np.int32(7)]
    arrays.append(np.asfortranarray(np.random.default_rng(0).random((300, 400))))
    with Wire(addresses, 0, boxes[0], 90) as first, Wire(addresses, 1, boxes[1], 90) as second:
        for number, array in enumerate(arrays):
            first.send(1, ("F", number, 1), np.asarray(array))
        second.send(0, ("B", 0, 0), arrays[0])
        for number, array in enumerate(arrays):
            got = boxes[1].take(("F", number, 1), "a test", 90)
            assert got.dtype.as_numpy_dtype == np.asarray(array).dtype
            np.testing.assert_array_equal(got, array)
        np.testing.assert_array_equal(boxes[0].take(("B", 0, 0), "a test", 90), arrays[0])
    assert first.bytes_sent > sum(np.asarray(array).nbytes for array in arrays)


def test_an_address_is_free_again_after_the_block():
    from utils.tf_config import pick_free_ports

    addresses = [f"127.0.0.1:{port}" for port in pick_free_ports(1)]
    held = Held()
    for _ in range(3):
        with Wire(addresses, 0, Mailbox(), 1):
            wait_for(lambda: len(held.list_new_threads()) == 1)  # the one before may still end
    held.assert_nothing_stays()


def test_an_address_in_use_and_a_silent_worker_are_one_line_each():
    from utils.tf_config import hold_free_ports, pick_free_ports

    with hold_free_ports(1) as [silent]:  # nobody else may listen there
        check_wires([f"127.0.0.1:{port}" for port in (*pick_free_ports(1), silent)])


def check_wires(addresses):
    with Wire(addresses, 0, Mailbox(), 0.3) as wire:
        with pytest.raises(DistributedError, match="Can't listen at .*Name another port"):
            Wire(addresses, 0, Mailbox(), 0.3)
        with pytest.raises(DistributedError, match="worker 1 doesn't answer at"):
            wire.send(1, ("F", 0, 1), np.ones(2))


def test_a_broken_message_ends_the_wait():
    import socket

    from utils.tf_config import pick_free_ports

    port = pick_free_ports(1)[0]
    box = Mailbox()
    with Wire([f"127.0.0.1:{port}"], 0, box, 90):
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(b"\xff\xff\xff\xffhello")
            with pytest.raises(DistributedError, match="another stage failed"):
                box.take(("F", 0, 0), "a test", 90)
