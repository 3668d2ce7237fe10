"""Lesson 00's replicas: equal as long as the all-reduce works, shown live, and recorded."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from process_watch import wait_for

from utils.data import load


@pytest.fixture(scope="module")
def data():
    return load("fashion_mnist")


def test_copies_are_equal_with_the_all_reduce_and_drift_apart_without(tf, data):
    from distlab.lessons.two_replicas import Replicas

    replicas = Replicas(data)
    frames = [replicas.step() for _ in range(40)]
    assert all(frame.apart == 0 for frame in frames)
    np.testing.assert_allclose(frames[-1].total, frames[-1].gradients.mean(axis=0), atol=1e-7)
    broken = [replicas.step(broken=True) for _ in range(25)]
    assert 0 < broken[0].apart < broken[9].apart and broken[9].apart > 0.01
    assert broken[-1].accuracy.min() < frames[-1].accuracy.min() - 0.08, "it forgets classes"


def test_it_trains_only_while_it_is_seen_and_follows_the_hand(tf, data, monkeypatch):
    from distlab.explorables import watched_replicas

    monkeypatch.setattr(watched_replicas, "SLOW_SECONDS", 0.05)
    monkeypatch.setattr(watched_replicas, "FAST_SECONDS", 0.01)
    watched = watched_replicas.watch_replicas(data)
    assert watched.train(2).step == 3 and watched._thread is None

    def move(**options):
        watched.options = {**watched.options, **options}

    move(seen=True)
    wait_for(lambda: watched.data["step"] > 4)
    assert watched.data["apart"] == 0 and watched.data["breaks"] == []
    move(broken=True)
    wait_for(lambda: watched.data["broken"] and watched.data["apart"] > 0)
    move(broken=False, replicas=3)
    wait_for(lambda: watched.data["replicas"] == 3 and watched.data["step"] > 1)
    assert watched.data["apart"] == 0 and len(watched.data["classes"]) == 3
    move(seen=False)
    wait_for(lambda: not watched._training.locked())
    watched.close()
    watched._thread.join(10)
    assert not watched._thread.is_alive()


def test_the_recording_in_the_tree_says_what_it_shows_and_moves_without_a_script():
    from distlab.explorables.watched_replicas import RECORDING

    text = RECORDING.read_text(encoding="utf-8")
    assert len(ElementTree.fromstring(text).get("aria-label")) > 100 and len(text) < 300_000
    assert "prefers-reduced-motion" in text and "prefers-color-scheme: dark" in text
    assert "<script" not in text
    # a browser that wakes between two scenes may paint both: the upper one hides the other
    assert len(re.findall(r'<g class="s[^>]*><rect class="panel"', text)) == 15
