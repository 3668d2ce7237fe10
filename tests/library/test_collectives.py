"""All-reduce in NumPy: right sums, and the messages, bytes and steps that are promised."""

import math

import numpy as np
import pytest

from utils.collectives import (
    ALGORITHMS,
    Network,
    Send,
    all_reduce,
    fit_alpha_beta,
    group_into_nodes,
    naive_all_reduce,
    recursive_doubling_all_reduce,
    ring_all_gather,
    ring_all_reduce,
    ring_reduce_scatter,
    split_into_chunks,
)

RANKS = (1, 2, 3, 5, 6, 7, 8, 16)
LENGTHS = (0, 1, 3, 97, 240)


def make_vectors(ranks: int, shape: int | tuple[int, ...], dtype=np.float64) -> list[np.ndarray]:
    random = np.random.default_rng(ranks)
    return [random.normal(size=shape).astype(dtype) for _ in range(ranks)]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("ranks", RANKS)
def test_every_rank_ends_with_the_same_sum(algorithm, ranks):
    for length in LENGTHS:
        for ranks_per_node in {1, min(2, ranks), min(3, ranks), ranks}:
            vectors = make_vectors(ranks, length)
            before = [vector.copy() for vector in vectors]
            result = all_reduce(vectors, algorithm, ranks_per_node)
            np.testing.assert_allclose(result.vectors[0], np.sum(before, axis=0), atol=1e-12)
            for rank in range(ranks):
                np.testing.assert_array_equal(result.vectors[rank], result.vectors[0])
                np.testing.assert_array_equal(vectors[rank], before[rank])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_shape_and_dtype_stay(algorithm):
    for shape, dtype in (((), np.float32), ((3, 4), np.float16), ((2, 0), np.float32), (5, int)):
        vectors = [np.ones(shape, dtype)] * 3
        result = all_reduce(vectors, algorithm, 2)
        for vector in result.vectors:
            assert vector.shape == np.shape(vectors[0]) and vector.dtype == dtype
            assert np.all(vector == 3)


@pytest.mark.parametrize("ranks", RANKS)
def test_ring_sends_what_its_closed_form_says(ranks):
    result = ring_all_reduce(make_vectors(ranks, 10 * ranks))
    assert result.steps == 2 * (ranks - 1)
    assert result.messages_per_rank == [2 * (ranks - 1)] * ranks
    assert result.bytes_per_rank == [2 * (ranks - 1) * 10 * 8] * ranks


def test_ring_with_fewer_elements_than_ranks_still_sends_every_message():
    result = ring_all_reduce(make_vectors(5, 2))
    assert result.messages_per_rank == [8] * 5
    assert sum(result.bytes_per_rank) == 2 * 4 * 2 * 8  # each element moves 2(P-1) times
    assert max(result.bytes_per_rank) - min(result.bytes_per_rank) <= 16


@pytest.mark.parametrize("ranks", RANKS)
def test_naive_goes_through_rank_0(ranks):
    result = naive_all_reduce(make_vectors(ranks, 7))
    assert result.steps == 2 * (ranks - 1)
    assert result.messages_per_rank == [ranks - 1] + [1] * (ranks - 1)
    assert result.bytes_per_rank == [56 * (ranks - 1)] + [56] * (ranks - 1)
    assert all(0 in (m.source, m.destination) for m in result.messages)


@pytest.mark.parametrize(
    "ranks, steps, messages",
    [(1, 0, 0), (2, 1, 1), (3, 3, 2), (4, 2, 2), (5, 4, 3), (8, 3, 3), (9, 5, 4), (16, 4, 4)],
)
def test_recursive_doubling_doubles_and_folds(ranks, steps, messages):
    result = recursive_doubling_all_reduce(make_vectors(ranks, 7))
    assert result.steps == steps
    assert max(result.messages_per_rank) == messages
    assert max(result.bytes_per_rank) == messages * 56
    folded = ranks - 2 ** int(math.log2(ranks))
    assert result.messages_per_rank[ranks - folded :] == [1] * folded


@pytest.mark.parametrize("ranks, levels", [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4)])
def test_a_tree_gathers_at_rank_0_and_spreads_by_halves(ranks, levels):
    result = all_reduce(make_vectors(ranks, 7), "tree")
    assert result.steps == 2 * levels
    assert result.messages_per_rank[0] == max(result.messages_per_rank) == levels
    assert sum(result.messages_per_rank) == 2 * (ranks - 1)
    up = [m for m in result.messages if m.phase == "reduce"]
    assert sorted(m.source for m in up) == list(range(1, ranks))  # each hands its sum up once


def test_hierarchical_talks_between_nodes_through_leaders_only():
    result = all_reduce(make_vectors(8, 12), "hierarchical", 3)  # nodes 0-2, 3-5, 6-7
    assert result.steps == 2 * 2 + 2 * 2
    assert result.messages_per_rank == [6, 1, 1, 6, 1, 1, 5, 1]
    assert max(result.bytes_per_rank) == 2 * 96 + 4 * 96 // 3
    between = [m for m in result.messages if m.source // 3 != m.destination // 3]
    assert {m.source for m in between} == {0, 3, 6} and len(between) == 3 * 4
    assert [list(node) for node in group_into_nodes(5, 2)] == [[0, 1], [2, 3], [4]]


def test_halves_of_the_ring_meet_at_the_scattered_sums():
    vectors = make_vectors(5, 11)
    total = split_into_chunks(np.sum(vectors, axis=0), 5)
    chunks = [split_into_chunks(vector, 5) for vector in vectors]
    network = Network(5)
    ring_reduce_scatter(chunks, network)
    assert network.steps == 4
    for rank in range(5):
        mine = (rank + 1) % 5
        np.testing.assert_allclose(chunks[rank][mine], total[mine])
    assert not np.allclose(chunks[0][0], total[0])
    ring_all_gather(chunks, network)
    for rank in range(5):
        np.testing.assert_allclose(np.concatenate(chunks[rank]), np.concatenate(total))


def test_trace_of_a_ring_of_three():
    network = Network(3, keep_values=True)
    result = ring_all_reduce([np.arange(6.0) + 10 * rank for rank in range(3)], network)
    told = [(m.step, m.source, m.destination, m.chunk, m.payload_bytes) for m in result.messages]
    assert told == [
        (0, 0, 1, 0, 16),
        (0, 1, 2, 1, 16),
        (0, 2, 0, 2, 16),
        (1, 0, 1, 2, 16),
        (1, 1, 2, 0, 16),
        (1, 2, 0, 1, 16),
        (2, 0, 1, 1, 16),
        (2, 1, 2, 2, 16),
        (2, 2, 0, 0, 16),
        (3, 0, 1, 0, 16),
        (3, 1, 2, 1, 16),
        (3, 2, 0, 2, 16),
    ]
    assert [m.phase for m in result.messages[::3]] == ["reduce-scatter"] * 2 + ["all-gather"] * 2
    np.testing.assert_array_equal(result.messages[0].values, [0, 1])
    np.testing.assert_array_equal(result.messages[3].values, [4 + 24, 5 + 25])
    np.testing.assert_array_equal(result.messages[9].values, result.vectors[0][:2])
    assert ring_all_reduce([np.ones(3)] * 2).messages[0].values is None


@pytest.mark.parametrize(
    "algorithm, phases",
    [
        ("naive", ["gather", "broadcast"]),
        ("ring", ["reduce-scatter", "all-gather"]),
        ("recursive-doubling", ["fold", "swap", "unfold"]),
        ("tree", ["reduce", "broadcast"]),
        ("hierarchical", ["reduce in node", "reduce-scatter", "all-gather", "broadcast in node"]),
    ],
)
def test_trace_names_its_phases_in_order(algorithm, phases):
    messages = all_reduce(make_vectors(5, 4), algorithm, 2).messages
    assert list(dict.fromkeys(message.phase for message in messages)) == phases
    assert [m.step for m in messages] == sorted(m.step for m in messages)
    whole = algorithm in ("naive", "recursive-doubling", "tree")
    assert all((m.chunk is None) == (whole or "in node" in m.phase) for m in messages)


def test_network_delivers_copies_of_what_was_sent():
    network, values = Network(2), np.zeros(3)
    (arrived,) = network.exchange([Send(0, 1, values)])
    values += 1
    np.testing.assert_array_equal(arrived.values, [0, 0, 0])
    assert network.exchange([]) == [] and network.steps == 1


def test_fit_finds_the_network_that_made_the_timings():
    messages, sizes = np.array([1, 2, 14, 14, 30]), np.array([1e3, 1e7, 1e5, 1e8, 1e6])
    seconds = messages * 20e-6 + sizes / 5e9
    for relative in (False, True):
        fit = fit_alpha_beta(messages, sizes, seconds, relative=relative)
        assert fit.latency_seconds == pytest.approx(20e-6, rel=1e-6)
        assert fit.bandwidth_bytes_per_second == pytest.approx(5e9, rel=1e-6)
        np.testing.assert_allclose(fit.residual_seconds, 0, atol=1e-12)


def test_fit_is_least_squares_with_residuals_measured_minus_fitted():
    messages, sizes = np.array([1.0, 1, 1]), np.array([0.0, 1e6, 2e6])
    fit = fit_alpha_beta(messages, sizes, [1.0, 3.0, 4.0])
    slope, start = np.polyfit(sizes, [1, 3, 4], 1)
    assert fit.latency_seconds == pytest.approx(start)
    assert 1 / fit.bandwidth_bytes_per_second == pytest.approx(slope)
    np.testing.assert_allclose(fit.residual_seconds, [-1 / 6, 1 / 3, -1 / 6])


def test_relative_fit_heeds_short_messages():
    sizes = np.array([8.0, 64, 1e9, 2e9])
    seconds = np.array([1e-5, 1e-5, 0.11, 0.20])
    assert fit_alpha_beta([1] * 4, sizes, seconds).latency_seconds > 1e-3
    relative = fit_alpha_beta([1] * 4, sizes, seconds, relative=True)
    assert relative.latency_seconds == pytest.approx(1e-5, rel=0.05)
    weights = 1 / seconds
    design = np.stack([np.ones(4), sizes], axis=1) * weights[:, None]
    expected, _ = np.linalg.lstsq(design / [1, 1e9], seconds * weights, rcond=None)[0]
    assert relative.latency_seconds == pytest.approx(expected, rel=1e-9)


def test_no_fitted_latency_is_negative():
    bent = fit_alpha_beta([1, 1, 1], [1e6, 2e6, 4e6], [1.0, 4.0, 16.0])
    assert bent.latency_seconds == 0
    expected = (1e6 * 1 + 2e6 * 4 + 4e6 * 16) / (1e12 + 4e12 + 16e12)
    assert 1 / bent.bandwidth_bytes_per_second == pytest.approx(expected)
