"""The ring between processes: equal to the sum, counted, and clear about who is gone."""

import json
import os
import socket
import threading
import time

import numpy as np
import pytest
from process_watch import wait_for

from benchmarks.ring_processes import make_reduce, time_both
from utils.cluster import ClusterError, LocalCluster, supervisor
from utils.cluster.waiting import is_stopped
from utils.collectives import ProcessRing, ring_all_reduce
from utils.errors import DistributedError
from utils.events import report
from utils.processes.connection import answers
from utils.strategies import make_strategy
from utils.tf_config import pick_free_ports


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(workers=3) as cluster:
        yield cluster


def pick_addresses(count):
    return [f"127.0.0.1:{port}" for port in pick_free_ports(count)]


def run_ranks(call, ranks):
    """Call `call(rank)` in a thread for each rank; return what each returned or raised."""
    ends = [None] * ranks

    def enter(rank):
        try:
            ends[rank] = call(rank)
        except DistributedError as error:
            ends[rank] = error

    threads = [threading.Thread(target=enter, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads), "a rank still waits"
    return ends


def make_vectors(ranks, length, dtype="float64"):
    rng = np.random.default_rng([ranks, length])
    return [rng.normal(scale=100, size=length).astype(dtype) for _ in range(ranks)]


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_equal_to_the_sum_with_the_messages_of_the_ring_in_one_process(ranks):
    addresses = pick_addresses(ranks)
    lengths = [0, 1, 2, 7, 1000, 300_007]
    vectors = [make_vectors(ranks, length) for length in lengths]

    def reduce_all(rank):
        with ProcessRing(addresses, rank, limit_seconds=90) as ring:
            sums = [ring.all_reduce(given[rank]) for given in vectors]
            return sums, ring.bytes_sent

    ends = run_ranks(reduce_all, ranks)
    expected = [ring_all_reduce(given) for given in vectors]
    for rank, (sums, sent) in enumerate(ends):
        for total, given, in_one_process in zip(sums, vectors, expected):
            np.testing.assert_allclose(total, np.sum(given, axis=0), rtol=1e-12, atol=1e-9)
            np.testing.assert_array_equal(total, in_one_process.vectors[rank])  # bit for bit
        assert sent == sum(result.bytes_per_rank[rank] for result in expected)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64"])
def test_shape_and_dtype_stay_and_the_input_is_left_alone(dtype):
    addresses = pick_addresses(2)
    given = [np.arange(24, dtype=dtype).reshape(2, 3, 4)[:, ::-1] * (rank + 1) for rank in (0, 1)]
    kept = [one.copy() for one in given]

    def reduce_one(rank):
        with ProcessRing(addresses, rank, limit_seconds=90) as ring:
            return ring.all_reduce(given[rank])

    for total in run_ranks(reduce_one, 2):
        assert total.dtype == dtype and total.shape == (2, 3, 4)
        np.testing.assert_array_equal(total, kept[0] + kept[1])
    np.testing.assert_array_equal(given, kept)


def reduce_in_worker(addresses, lengths, others, sizes):
    """What each worker does; the sums are held against TensorFlow's collective, then timed."""
    rank = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    strategy, differences = make_strategy("multi-worker", all_reduce="ring"), []
    with ProcessRing(addresses, rank, limit_seconds=90) as ring:
        for length in lengths:
            mine = np.linspace(-1, 1, length, dtype="float32") * (rank + 1)
            theirs = make_reduce(strategy, length)(mine)
            differences.append(float(np.max(np.abs(ring.all_reduce(mine) - theirs), initial=0)))
    return os.getpid(), differences, theirs.tolist(), time_both(others, sizes, 2)


def test_between_processes_it_is_equal_to_tensorflows_collective_and_both_are_timed(cluster):
    lengths, sizes, addresses = [1, 2, 10_001, 5], [4, 4096], pick_addresses(6)
    arguments = (addresses[:3], lengths, addresses[3:], sizes)
    results = cluster.run(reduce_in_worker, *arguments, echo=False, timeout=300)
    assert len({process for process, *_ in results} | {os.getpid()}) == 4
    assert all(difference < 1e-5 for _, found, *_ in results for difference in found)
    assert all(last == [-6.0, -3.0, 0.0, 3.0, 6.0] for *_, last, _ in results)
    for seconds in (way for *_, timed in results for way in timed):
        assert list(seconds) == sizes
        assert all(len(rounds) == 2 and min(rounds) > 0 for rounds in seconds.values())


def reduce_until_told(addresses, go, limit_seconds):
    """Reduce until the ring says who is missing; rank 2 has a limit once the file `go` is there."""
    rank = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    with ProcessRing(addresses, rank, limit_seconds=90) as ring:
        while True:
            try:
                ring.all_reduce(np.ones(50_000))
            except DistributedError as error:
                report("told", said=str(error))
                time.sleep(300)  # until the job ends: the others are to speak too
            report("step")
            if rank == 1:  # it stays in the middle until it is disturbed
                time.sleep(300)
            while not os.path.exists(go):
                time.sleep(0.01)
            if rank == 2:
                ring._limit = limit_seconds


def disturb(cluster, act, go, limit_seconds=90.0):
    """Run the ring on three workers, disturb worker 1, return task -> what it said."""
    job = cluster.start(reduce_until_told, pick_addresses(3), str(go), limit_seconds)
    said, steps = {}, 0
    try:
        for event in job.events():
            if event["event"] == "step":
                steps += 1
                if steps == 3:
                    act(job)
                    go.touch()
            elif event["event"] == "told":
                said[event["task"]] = event["said"]
            if len(said) == 2:
                break
    finally:
        job.stop()
    assert len(said) == 2, (said, job.error)
    return said


def test_all_ranks_name_the_worker_that_was_killed(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "PEER_SECONDS", 90.0)  # for both to speak on a busy machine

    def kill(job):
        victim = job.tasks[1]
        job.kill("worker", 1)
        wait_for(lambda: victim.status is not None)

    said = disturb(cluster, kill, tmp_path / "go")
    assert set(said) == {"worker 0", "worker 2"}
    for name, words in said.items():
        assert words.startswith(f"Ring all-reduce on rank {name[-1]}: rank 1 has "), words


def test_a_frozen_worker_is_named_when_the_limit_is_over(cluster, tmp_path):
    def freeze(job):
        job.pause("worker", 1)
        wait_for(lambda: is_stopped(job.tasks[1].process))

    said = disturb(cluster, freeze, tmp_path / "go", limit_seconds=1.0)
    assert "rank 1 has sent nothing for 1 s" in said["worker 2"]
    assert "rank" in said["worker 0"]


def test_ranks_that_reduce_different_arrays_are_told():
    addresses = pick_addresses(2)

    def reduce_own_length(rank):
        with ProcessRing(addresses, rank, limit_seconds=60) as ring:
            return ring.all_reduce(np.zeros(8 + 2 * rank, "float32"))

    says = [str(error) for error in run_ranks(reduce_own_length, 2)]
    assert any("16 bytes of <f4" in said and "with 20 of <f4" in said for said in says), says
    assert all(said.startswith(f"Ring all-reduce on rank {rank}") for rank, said in enumerate(says))


def test_a_ring_that_failed_or_was_closed_says_so():
    addresses = pick_addresses(2)

    def leave_or_go_on(rank):
        with ProcessRing(addresses, rank, limit_seconds=60) as ring:
            ring.all_reduce(np.ones(3))
            if rank == 0:
                return "left"
            with pytest.raises(DistributedError, match="rank 1: rank 0 has hung up"):
                ring.all_reduce(np.ones(3))
            ring.all_reduce(np.ones(3))

    left, error = run_ranks(leave_or_go_on, 2)
    assert left == "left" and str(error) == "The ring of rank 1 is closed. Make a new one."


def test_a_neighbor_that_never_comes_is_named():
    with pytest.raises(
        DistributedError, match="rank 0: rank 1 doesn't answer at 127.0.0.1:.* 0.3 s"
    ):
        ProcessRing(pick_addresses(2), 0, limit_seconds=0.3)
    addresses = pick_addresses(3)
    with (
        socket.create_server(("127.0.0.1", int(addresses[1].split(":")[1]))),
        pytest.raises(DistributedError, match="rank 0: rank 2 didn't connect within 0.3 s"),
    ):
        ProcessRing(addresses, 0, limit_seconds=0.3)


def test_strangers_are_turned_away():
    addresses = pick_addresses(2)
    host, port = addresses[0].split(":")

    def join(rank):
        if rank == 1:  # somebody else calls at rank 0 first
            wait_for(lambda: answers(addresses[0], 5.0))
            stranger = socket.create_connection((host, int(port)), timeout=300)
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with ProcessRing(addresses, rank, limit_seconds=90) as ring:
            return ring.all_reduce(np.ones(5))

    for total in run_ranks(join, 2):
        np.testing.assert_array_equal(total, 2 * np.ones(5))


def test_a_taken_port_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(DistributedError, match="rank 0: Can't listen at .*Name another port"):
            ProcessRing([address, "127.0.0.1:1"], 0, limit_seconds=1)


def test_a_worker_that_fails_fails_the_job_with_the_rings_words(cluster):
    def meet_nobody(addresses):
        rank = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
        if rank == 2:
            time.sleep(300)
        ProcessRing(addresses, rank, limit_seconds=0.5)

    with pytest.raises(ClusterError, match=r"worker \d: PeerSilent: rank \d: rank \d d"):
        cluster.run(meet_nobody, pick_addresses(3), echo=False, timeout=300)
