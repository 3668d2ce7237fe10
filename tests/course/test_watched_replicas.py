"""Lesson 00's replicas: equal as long as the all-reduce works, shown live, and recorded."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from process_watch import wait_for

from distlab.widgets import replicas_recording
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
    text = replicas_recording.record([*frames, *frames, *broken, *broken])
    ElementTree.fromstring(text)
    assert len(text) < 300_000 and "<script" not in text and text.count("<polyline") == 45


def test_it_trains_only_while_it_is_seen_and_follows_the_hand(tf, data, monkeypatch):
    from distlab.widgets import watched_replicas

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


def test_the_recording_in_the_tree_says_what_it_shows():
    picture = ElementTree.parse(replicas_recording.PLACE).getroot()
    assert picture.get("aria-label") == replicas_recording.ALT
    assert replicas_recording.PLACE.stat().st_size < 300_000
    text = replicas_recording.PLACE.read_text(encoding="utf-8")
    assert "prefers-reduced-motion" in text and "prefers-color-scheme: dark" in text
    # a browser that wakes between two scenes may paint both: the upper one hides the other
    scenes = re.findall(r'<g class="s[^>]*><rect class="panel"', text)
    assert len(scenes) == len([*replicas_recording.TOGETHER, *replicas_recording.BROKEN])
