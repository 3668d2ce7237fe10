"""The pictures and explorers of the lesson on why one distributes."""

import numpy as np

from distlab.explorables import sharing


def test_cluster_names_every_worker_and_replica():
    picture = sharing.draw_cluster(2, 2)
    for words in ("worker 0", "worker 1", "replica 0", "replica 3", "GPU:1", "all-reduce"):
        assert words in picture.svg
    assert picture.alt.startswith("2 workers, each one process with 2 devices")


def test_two_ways_cut_images_or_weights():
    picture = sharing.draw_two_ways(64, 784, 128)
    assert picture.svg.count("16 images") >= 4 and picture.svg.count("784 × 32") >= 4
    assert picture.svg.count("all 64 images") >= 4 and picture.svg.count("784 × 128 weights") >= 4
    assert picture.svg.count("16 × 128 outputs") >= 4 and picture.svg.count("64 × 32 outputs") >= 4
    assert "all-reduce: the gradients of 784 × 128" in picture.svg
    assert "all-gather: outputs of 64 × 128" in picture.svg


def test_synchronous_workers_wait_for_the_slowest():
    rows = sharing.pace_rows(True, (1.0, 2.0), 6.0)
    assert [row[1:3] for row in rows if row[4] == "waits"] == [(1.0, 2.0), (3.0, 4.0), (5.0, 6.0)]
    assert sum(row[4] == "computes" for row in rows) == 6


def test_asynchronous_workers_never_wait():
    rows = sharing.pace_rows(False, (1.0, 2.0), 6.0)
    assert {row[4] for row in rows} == {"computes"} and len(rows) == 6 + 3


def test_steps_that_vary_keep_their_mean_and_make_all_wait_in_turn():
    rows = sharing.pace_rows(True, (1.0, 1.0), 12.0, vary=0.5)
    waits = {row[0] for row in rows if row[4] == "waits"}
    assert waits == {"sync, worker 0", "sync, worker 1"}
    spans = [row[2] - row[1] for row in rows if row[4] == "computes"]
    assert min(spans) >= 0.5 and max(spans) <= 1.5 and len(set(spans)) == len(spans)
    slowest = [max(row[2] - row[1] for row in rows if row[3] == str(k)) for k in range(1, 8)]
    starts = [min(row[1] for row in rows if row[3] == str(k)) for k in range(1, 9)]
    np.testing.assert_allclose(np.diff(starts), slowest)


def test_pace_counts_gradients_in_words():
    assert "24 with an all-reduce" in sharing.show_pace(2.0).caption
    assert "42 where nobody waits" in sharing.show_pace(2.0).caption
    assert "48 with an all-reduce" in sharing.show_pace(1.0).caption


def test_memory_shares_activations_only():
    kept = {"weights": 2**20, "gradients": 2**20}
    alone = sharing.show_memory(kept, 2**20, 1, 64)
    shared = sharing.show_memory(kept, 2**20, 4, 64)
    assert "66 MiB" in alone.caption and "18 MiB" in shared.caption
    assert "11.1 %" in shared.caption  # 2 of 18 MiB


def test_sharding_divides_what_mirroring_keeps():
    picture = sharing.show_memory({"weights": 2**20, "gradients": 3 * 2**20}, 2**20, 4, 64)
    assert "20 MiB mirrored" in picture.caption and "Sharded: 17 MiB" in picture.caption
    assert "mirrored: weights 1 MiB, gradients 3 MiB, activations 16 MiB" in picture.alt
    assert "weights 0.25 MiB, gradients 0.75 MiB, activations 16 MiB" in picture.alt
