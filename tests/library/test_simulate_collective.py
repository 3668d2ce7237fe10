"""The all-reduce simulator against closed forms, real traces, published runs, and from a shell."""

import json
import math
import re
from collections.abc import Iterable

import numpy as np
import pytest

from distlab import cli
from utils.collectives import ALGORITHMS, Message, all_reduce, list_distances, list_parents
from utils.simulate import published
from utils.simulate.collective import (
    Link,
    Nodes,
    compute_bus_bandwidth,
    fit_link,
    simulate_all_reduce,
)

SLOW, FAST = Link(3e-6, 1e9), Link(1e-6, 7e9)
DOUBLING = "recursive-doubling"
RANKS = (1, 2, 3, 5, 8, 12, 13, 16, 25)


def time_messages(messages: Iterable[Message], link: Link, nodes: Nodes | None = None) -> float:
    """Return the seconds of recorded messages: each step lasts as long as its slowest one."""
    slowest: dict[int, float] = {}
    for message in messages:
        inside = nodes is not None and (
            message.source // nodes.ranks_per_node == message.destination // nodes.ranks_per_node
        )
        seconds = (nodes.link if inside else link).seconds(message.payload_bytes)
        slowest[message.step] = max(slowest.get(message.step, 0.0), seconds)
    return sum(slowest.values())


@pytest.mark.parametrize("ranks", [2, 3, 5, 7, 8, 16, 100, 1000, 16384])
@pytest.mark.parametrize("size", [0, 1, 1000, 25_600_000 * 4, 10**12])
def test_closed_forms_on_equal_links(ranks, size):
    alpha, beta = 5e-6, 1 / 77e9
    link = Link(alpha, 77e9)
    core = math.floor(math.log2(ranks))
    fold = ranks != 2**core
    p1 = ranks - 1
    expected = {
        "naive": (2 * p1 * (alpha + size * beta), p1, p1 * size),
        "ring": (2 * p1 * (alpha + size / ranks * beta), 2 * p1, 2 * p1 * size / ranks),
        DOUBLING: (
            (core + 2 * fold) * (alpha + size * beta),
            core + fold,
            (core + fold) * size,
        ),
    }
    for algorithm, (seconds, messages, sent) in expected.items():
        cost = simulate_all_reduce(algorithm, ranks, size, link)
        assert cost.seconds == pytest.approx(seconds, rel=1e-12)
        assert cost.messages_per_rank == messages
        assert cost.bytes_per_rank == pytest.approx(sent, rel=1e-12)
        bus = size / seconds * 2 * p1 / ranks
        assert cost.bus_bandwidth_bytes_per_second == pytest.approx(bus, rel=1e-12)


@pytest.mark.parametrize("nodes, per_node", [(2, 8), (3, 1), (1, 6), (1000, 8)])
def test_closed_form_of_hierarchical(nodes, per_node):
    size = 10**9
    cost = simulate_all_reduce("hierarchical", nodes * per_node, size, SLOW, Nodes(per_node, FAST))
    inside = 2 * (per_node - 1) * (1e-6 + size / 7e9)
    between = 2 * (nodes - 1) * (3e-6 + size / nodes / 1e9)
    assert cost.seconds == pytest.approx(inside + between, rel=1e-12)
    assert cost.messages_per_rank == per_node - 1 + 2 * (nodes - 1)
    expected = (per_node - 1 + 2 * (nodes - 1) / nodes) * size
    assert cost.bytes_per_rank == pytest.approx(expected, rel=1e-12)


def test_nodes_that_do_not_fill_cost_what_the_full_ones_do():
    full = simulate_all_reduce("hierarchical", 24, 8e6, SLOW, Nodes(8, FAST))
    for ranks in (17, 20, 23):
        part = simulate_all_reduce("hierarchical", ranks, 8e6, SLOW, Nodes(8, FAST))
        assert (part.seconds, part.messages_per_rank) == (full.seconds, full.messages_per_rank)
    assert simulate_all_reduce("hierarchical", 16, 8e6, SLOW, Nodes(8, FAST)).seconds < full.seconds


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("ranks", RANKS)
def test_counts_and_seconds_are_those_of_the_real_run(algorithm, ranks):
    for per_node in range(1, ranks + 1):
        length = ranks * -(-ranks // per_node)  # divides by the ranks and by the nodes
        run = all_reduce([np.ones(length)] * ranks, algorithm, per_node)
        cases = [(SLOW, Nodes(per_node, FAST)), (FAST, Nodes(per_node, SLOW))]
        if algorithm != "hierarchical":
            cases += [(SLOW, None)]
        for link, nodes in cases:
            cost = simulate_all_reduce(algorithm, ranks, length * 8, link, nodes)
            assert cost.messages_per_rank == max(run.messages_per_rank)
            assert cost.bytes_per_rank == max(run.bytes_per_rank)
            assert cost.seconds == pytest.approx(time_messages(run.messages, link, nodes), rel=1e-9)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_lengths_that_do_not_divide_stay_within_an_element_a_message(algorithm):
    for ranks, length in ((3, 100), (5, 1), (8, 97), (7, 0)):
        run = all_reduce([np.ones(length)] * ranks, algorithm, 2)
        cost = simulate_all_reduce(algorithm, ranks, length * 8, SLOW, Nodes(2, FAST))
        assert cost.messages_per_rank == max(run.messages_per_rank)
        assert abs(cost.bytes_per_rank - max(run.bytes_per_rank)) <= 2 * 8
        seconds = time_messages(run.messages, SLOW, Nodes(2, FAST))
        assert cost.seconds <= seconds + 1e-12
        assert seconds - cost.seconds <= run.steps * 8 / 1e9


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_one_rank_costs_nothing(algorithm):
    cost = simulate_all_reduce(algorithm, 1, 10**9, SLOW, Nodes(1, FAST))
    assert (cost.seconds, cost.messages_per_rank, cost.bytes_per_rank) == (0, 0, 0)
    assert cost.bus_bandwidth_bytes_per_second == 0
    free = simulate_all_reduce(algorithm, 2, 0, Link(0, 1e9), Nodes(1, FAST))
    assert (free.seconds, free.bus_bandwidth_bytes_per_second) == (0, 0)


def test_equal_links_make_nodes_no_difference():
    for algorithm in ("naive", "ring", DOUBLING):
        with_nodes = simulate_all_reduce(algorithm, 13, 10**6, SLOW, Nodes(4, SLOW))
        assert with_nodes == simulate_all_reduce(algorithm, 13, 10**6, SLOW)


def test_hierarchical_beats_the_ring_where_latency_between_nodes_counts():
    args = (1024, 1000, Link(50e-6, 10e9), Nodes(8, Link(1e-6, 300e9)))
    assert simulate_all_reduce("hierarchical", *args).seconds < 0.15 * (
        simulate_all_reduce("ring", *args).seconds
    )


def test_a_billion_ranks_take_no_time_to_simulate():
    ranks = 10**9 + 1
    for per_node in (1, 12, 2**15 - 1, 10**8, ranks // 2, ranks - 1):
        for algorithm in ALGORITHMS:
            cost = simulate_all_reduce(algorithm, ranks, 10**6, SLOW, Nodes(per_node, FAST))
            assert math.isfinite(cost.seconds) and cost.seconds > 0


@pytest.mark.parametrize("inside, between", [(1, 1000), (1000, 1)])
def test_steps_of_the_tree_pay_for_every_link_that_they_use(inside, between):
    links = Link(between, 1e30), Link(inside, 1e30)
    for ranks in range(1, 70):
        for per_node in range(1, ranks + 1):
            seconds = 0
            for distance in list_distances(ranks):
                parents = list_parents(ranks, distance)
                together = {p // per_node == (p + distance) // per_node for p in parents}
                seconds += 2 * max(inside if each else between for each in together)
            cost = simulate_all_reduce("tree", ranks, 0, links[0], Nodes(per_node, links[1]))
            assert cost.seconds == seconds, (ranks, per_node)


def test_two_points_of_nccl_predict_the_ends_of_its_range():
    rows = published.read_table("nccl_allreduce_p4de")
    measured = {row["bytes"]: row["time_us_out_of_place"] / 1e6 for row in rows}
    ends = (8, 2**30)
    link, _ = fit_link("ring", 16, ends, [measured[n] for n in ends])
    errors = {
        n: simulate_all_reduce("ring", 16, n, link).seconds / seconds - 1
        for n, seconds in measured.items()
    }
    assert len(errors) == 29 and all(abs(errors[n]) < 1e-9 for n in ends)
    outer = [e for n, e in errors.items() if n <= 8192 or n >= 256 * 2**20]
    assert len(outer) == 15 and max(map(abs, outer)) < 0.08  # the docstring says so; 15 % is asked
    middle = [e for n, e in errors.items() if 8192 < n < 256 * 2**20]
    assert -0.525 < min(middle) < -0.515 and max(middle) < 0


def test_bus_bandwidth_of_a_ring_is_flat_in_ranks():
    rows = published.read_table("h200_ring_busbw")
    link = Link(5e-6, rows[0]["h200_ring"] * 1e9)
    for row in rows:
        cost = simulate_all_reduce("ring", int(row["ranks"]), 16 * 2**30, link)
        assert cost.bus_bandwidth_bytes_per_second / 1e9 == pytest.approx(row["h200_ring"], 0.008)
    assert [row["ranks"] for row in rows] == [4, 5, 6, 7, 8]


def test_published_tables_cite_their_source():
    for path in published.FOLDER.glob("*.csv"):
        assert len(published.read_source(path.stem)) > 20
        assert published.read_table(path.stem)


@pytest.mark.parametrize(
    "algorithm, ranks",
    [("naive", 4), ("ring", 7), (DOUBLING, 6), (DOUBLING, 8)],
)
def test_link_is_found_again_from_simulated_times(algorithm, ranks):
    link, sizes = Link(12e-6, 3e9), [10**3, 10**6, 10**8]
    seconds = [simulate_all_reduce(algorithm, ranks, n, link).seconds for n in sizes]
    found, fit = fit_link(algorithm, ranks, sizes, seconds, relative=True)
    assert found.latency_seconds == pytest.approx(link.latency_seconds)
    assert found.bandwidth_bytes_per_second == pytest.approx(link.bandwidth_bytes_per_second)
    np.testing.assert_allclose(fit.residual_seconds, 0, atol=1e-9)


def test_bus_bandwidth_is_that_of_nccl_tests():
    # 2 x 8 A100 at 1 GiB in 26,217 us: algorithm bandwidth 40.96, times 2 * 15 / 16
    assert compute_bus_bandwidth(16, 2**30, 26217e-6) == pytest.approx(76.79e9, abs=5e6)


def run_command(text: str) -> int:
    """Run `distlab simulate all-reduce ...`; return its exit status."""
    return cli.main(["simulate", "all-reduce", *text.split()])


LINKS = "--latency 5us --bandwidth 77GB/s"
NODES = "--ranks-per-node 8 --node-latency 1us --node-bandwidth 300GB/s"


def test_command_prints_the_four_numbers_as_json(capsys):
    assert run_command(f"--algorithm ring --ranks 16 --bytes 1073741824 {LINKS} --json") == 0
    found = json.loads(capsys.readouterr().out)
    seconds = 30 * 5e-6 + 30 / 16 * 2**30 / 77e9
    assert found == {
        "seconds": pytest.approx(seconds, rel=1e-12),
        "messages_per_rank": 30,
        "bytes_per_rank": 30 * 2**26,
        "bus_bandwidth_bytes_per_second": pytest.approx(30 / 16 * 2**30 / seconds, rel=1e-12),
    }


def test_command_takes_nodes(capsys):
    assert (
        run_command(f"--algorithm hierarchical --ranks 20 --bytes 3e6 {LINKS} {NODES} --json") == 0
    )
    found = json.loads(capsys.readouterr().out)
    seconds = 14 * (1e-6 + 3e6 / 300e9) + 4 * (5e-6 + 1e6 / 77e9)
    assert found["seconds"] == pytest.approx(seconds, rel=1e-12)
    assert (found["messages_per_rank"], found["bytes_per_rank"]) == (11, 25_000_000)


def test_command_prints_a_table(capsys):
    asked = f"--algorithm {DOUBLING} --ranks 16 --bytes 1000000 {LINKS} {NODES}"
    assert run_command(asked) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("all-reduce: latency 5 us, bandwidth 77 GB/s, ranks per node 8")
    assert f"algorithm {DOUBLING}, ranks 16, bytes 1,000,000" in printed
    assert re.search(r"bytes per rank +4,000,000 \(3.8 MiB\)\n", printed)
    assert re.search(r"messages per rank +4\n", printed)
