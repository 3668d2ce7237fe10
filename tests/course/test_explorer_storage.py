"""The storage explorer: its byte counts, and that it follows its controls."""

from distlab.explorables.storage import (
    busiest_link_bytes,
    explain_storage,
    held_bytes,
    sent_bytes,
    storage_explorer,
)


def test_central_storage_holds_everything_once_on_the_host():
    assert held_bytes("mirrored", 100, slots=2) == {"host": 0, "each accelerator": 300}
    assert held_bytes("central-storage", 100, slots=2) == {"host": 300, "each accelerator": 0}
    assert held_bytes("central-storage", 100, slots=0)["host"] == 100


def test_central_storage_sends_two_trips_more_than_replicas():
    assert sent_bytes("mirrored", 10, replicas=3) == 40
    assert sent_bytes("central-storage", 10, replicas=3) == 80


def test_a_ring_spreads_what_a_host_must_send_alone():
    central, one_device, ring = busiest_link_bytes(12, replicas=4).values()
    assert (central, one_device, ring) == (60, 36, 18)


def test_the_sentence_gives_the_memory_and_the_ratios():
    says = explain_storage(2**20, replicas=3, optimizer="Adam")
    assert "frees 3.0 MiB on each of 3" in says
    assert "3 times what a replica sends in a ring" in says
    assert "2 times what replica 0 sends" in says


def test_the_explorer_follows_its_controls():
    explorer = storage_explorer(replicas=2)
    before = explorer.result
    assert [part["kind"] for part in explorer.data["frame"]["parts"]] == ["bars", "bars"]
    explorer.move(replicas=8)
    assert explorer.values["replicas"] == 8
    assert "8 replicas" in explorer.result and explorer.result != before
    explorer.move(optimizer="SGD")
    assert "381.5 MiB on each of 8" in explorer.result
