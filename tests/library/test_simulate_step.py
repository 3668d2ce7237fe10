"""A step with buckets, overlap and stragglers: closed forms, and a queue written out."""

import math

import numpy as np
import pytest

from utils.simulate.collective import Link, Nodes, simulate_all_reduce
from utils.simulate.step import Network, StepWork, simulate_step, split_buckets
from utils.simulate.stragglers import expect_slowest
from utils.simulate.units import format_seconds, parse_rate, parse_time, parse_whole

WORK = StepWork(0.1, 0.2, 400e6)
NETWORK = Network(Link(1e-5, 10e9))


def ring(devices, payload, latency=1e-5, bandwidth=10e9):
    return 2 * (devices - 1) * (latency + payload / devices / bandwidth)


def walk(work, devices, bucket_bytes, overlap=True):
    """Return the step's seconds the slow way: one bucket after the other."""
    left, done, free = work.gradient_bytes, 0.0, 0.0
    while left > 0:
        size = min(bucket_bytes, left)
        left, done = left - size, done + size
        ready = work.forward_seconds + work.backward_seconds * (
            done / work.gradient_bytes if overlap else 1
        )
        free = max(free, ready) + ring(devices, size)
    return max(free, work.forward_seconds + work.backward_seconds)


@pytest.mark.parametrize("devices", [1, 2, 8, 1000])
@pytest.mark.parametrize("bucket", [1e6, 25 * 2**20, 150e6, 1e9])
@pytest.mark.parametrize("overlap", [True, False])
def test_a_step_is_the_queue_of_its_buckets(devices, bucket, overlap):
    step = simulate_step(WORK, devices, NETWORK, bucket_bytes=bucket, overlap=overlap)
    assert step.step_seconds == pytest.approx(walk(WORK, devices, bucket, overlap), rel=1e-9)
    assert step.efficiency == pytest.approx(0.3 / step.step_seconds)
    assert step.exposed_communication_seconds == pytest.approx(step.step_seconds - 0.3, abs=1e-12)


def test_one_bucket_without_overlap_is_compute_and_one_ring():
    step = simulate_step(WORK, 8, NETWORK, bucket_bytes=400e6, overlap=False)
    assert step.step_seconds == pytest.approx(0.3 + ring(8, 400e6))
    assert simulate_step(StepWork(0.1, 0.2, 0), 8, NETWORK).step_seconds == pytest.approx(0.3)
    assert simulate_step(WORK, 1, NETWORK).step_seconds == pytest.approx(0.3)


def test_a_network_faster_than_backward_exposes_the_last_bucket_alone():
    step = simulate_step(WORK, 8, Network(Link(0.0, 100e9)), bucket_bytes=100e6)
    assert step.exposed_communication_seconds == pytest.approx(ring(8, 100e6, 0.0, 100e9))


def test_nodes_are_those_of_the_all_reduce_and_may_be_larger_than_the_run():
    nodes, link = Nodes(8, Link(1e-6, 200e9)), Link(1e-5, 25e9)
    whole = simulate_all_reduce("ring", 64, 1e6, link, nodes).seconds
    assert Network(link, nodes).ring_seconds(64, 1e6) == whole
    inside = simulate_all_reduce("ring", 4, 1e6, nodes.link).seconds
    assert Network(link, nodes).ring_seconds(4, 1e6) == pytest.approx(inside)


def test_buckets_fill_in_order_and_the_last_is_smaller():
    assert split_buckets(100, 40).tolist() == [40, 40, 20]
    assert split_buckets(80, 40).tolist() == [40, 40]
    assert split_buckets(0, 40).tolist() == []


def test_the_rows_of_a_timeline_cover_the_step():
    step = simulate_step(WORK, 8, NETWORK)
    rows = step.rows()
    assert max(end for _, _, end, _, _ in rows) == pytest.approx(step.step_seconds)
    assert [row[3] for row in rows if row[0] == "network"] == [str(i) for i in range(1, 17)]


@pytest.mark.parametrize("sigma", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("workers", [1, 2, 16, 1000])
def test_the_expected_slowest_is_the_mean_of_drawn_ones(workers, sigma):
    random, steps = np.random.default_rng(4), 2_000_000 // max(workers, 20)
    drawn = random.lognormal(-(sigma**2) / 2, sigma, (steps, workers)).max(axis=1)
    error = drawn.std() / math.sqrt(len(drawn))
    assert abs(expect_slowest(workers, sigma) - drawn.mean()) < 4.5 * error


def test_two_workers_have_a_closed_form():
    normal = (1 + math.erf(0.4 / 2)) / 2  # E max of two is 2 Phi(sigma / sqrt 2)
    assert expect_slowest(2, 0.4) == pytest.approx(2 * normal, rel=1e-5)
    assert expect_slowest(1, 0.4) == pytest.approx(1, rel=1e-5)
    assert expect_slowest(1000, 0.0) == 1.0


def test_stragglers_stretch_compute_and_lower_efficiency():
    slow = simulate_step(WORK, 64, Network(Link(0.0, 1e15)), straggler_sigma=0.2)
    assert slow.step_seconds == pytest.approx(0.3 * expect_slowest(64, 0.2), rel=1e-6)
    assert slow.straggler_seconds > 0


def test_the_update_follows_compute_and_the_last_bucket():
    work = StepWork(0.1, 0.2, 400e6, update_seconds=0.05)
    for bandwidth in (1e9, 1e15):
        network = Network(Link(1e-5, bandwidth))
        without, step = (simulate_step(w, 8, network) for w in (WORK, work))
        assert step.step_seconds == pytest.approx(without.step_seconds + 0.05)
        assert step.exposed_communication_seconds == without.exposed_communication_seconds
        assert step.efficiency == pytest.approx(0.35 / step.step_seconds)
        assert step.rows()[-1][1:] == (without.step_seconds, step.step_seconds, "U", "update")


def test_rates_carry_their_unit():
    rates = {
        "100Gb/s": 12.5e9,
        "12GB/s": 12e9,
        "400 Gbit/s": 50e9,
        "400Gbps": 50e9,
        "1Tb/s": 125e9,
        "8b/s": 1,
        "1GiB/s": 2**30,
        " 2.5e1 MB/s ": 25e6,
    }
    for text, rate in rates.items():
        assert parse_rate(text) == pytest.approx(rate, rel=1e-12), text


def test_times_carry_their_unit_and_large_numbers_may_be_short():
    for text, us in {"5us": 5, "0.005 ms": 5, "5µs": 5, "1s": 1e6, "200ns": 0.2}.items():
        assert parse_time(text) == pytest.approx(us / 1e6), text
    assert [parse_whole(text) for text in ("7", "7e9", "-2", "1.5e1")] == [7, 7 * 10**9, -2, 15]
    shown = {0: "0 s", 2.5: "2.5 s", 0.00125: "1.25 ms", 5e-6: "5 us", 1e-9: "0.001 us"}
    assert {seconds: format_seconds(seconds) for seconds in shown} == shown
