"""Lesson 00's replicas: equal as long as the all-reduce works, shown live, and recorded."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from node_runner import run_in_node
from page_checks import watch
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


def test_it_trains_only_while_it_is_seen_and_follows_the_hand(tf, data, monkeypatch, request):
    from distlab.explorables import watched_replicas

    monkeypatch.setattr(watched_replicas, "SLOW_SECONDS", 0.05)
    monkeypatch.setattr(watched_replicas, "FAST_SECONDS", 0.01)
    watched = watched_replicas.watch_replicas(data)
    request.addfinalizer(watched.close)
    assert watched.train(2).step == 3 and watched._thread is None

    def move(**options):
        watched.options = {**watched.options, **options}

    move(seen=True)
    wait_for(lambda: watched.data["frame"]["step"] > 4)
    assert watched.data["frame"]["apart"] == 0 and watched.data["frame"]["breaks"] == []
    move(broken=True)
    wait_for(lambda: watched.data["frame"]["broken"] and watched.data["frame"]["apart"] > 0)
    move(broken=False, replicas=3)
    wait_for(lambda: watched.data["frame"]["replicas"] == 3 and watched.data["frame"]["step"] > 1)
    assert watched.data["frame"]["apart"] == 0 and len(watched.data["frame"]["classes"]) == 3
    move(seen=False)
    wait_for(lambda: not watched._training.locked())
    watched._rest({})  # the hand has moved just before it rests: it isn't waited for again
    watched.close()
    watched._thread.join(120)
    assert not watched._thread.is_alive()


def test_the_recording_in_the_tree_says_what_it_shows_and_moves_without_a_script():
    from distlab.explorables.watched_replicas import RECORDING

    text = RECORDING.read_text(encoding="utf-8")
    assert len(ElementTree.fromstring(text).get("aria-label")) > 100 and len(text) < 300_000
    assert "prefers-reduced-motion" in text and "prefers-color-scheme: dark" in text
    assert "<script" not in text
    # a browser that wakes between two scenes may paint both: the upper one hides the other
    assert len(re.findall(r'<g class="s[^>]*><rect class="panel"', text)) == 15


@pytest.mark.parametrize("count", [2, 3])
def test_the_page_takes_the_steps_of_the_kernel(tf, data, tmp_path, count):
    """The same weights, images and breaks: losses, gradients and weights as TensorFlow has them."""
    from distlab.lessons.two_replicas import Replicas, split_classes

    rng, replicas = np.random.default_rng(7), Replicas(data, count)
    given = {"start": [v.numpy().ravel() for v in replicas.copies[0][0]], "steps": []}
    losses, totals = [], []
    for broken in (False, False, False, True, True, False):
        chosen = rng.integers(0, 1000, [count, 16])
        pixels = data.train.images[chosen][..., None] / np.float32(255)
        # noise, or rounding decides which of the equal values of a flat region is the largest
        images = pixels + rng.uniform(0, 0.1, pixels.shape).astype(np.float32)
        labels = data.train.labels[chosen]
        step = {"images": images.reshape(count, 16, 784), "labels": labels, "broken": broken}
        given["steps"].append(step)
        each, _, total = replicas._update(images, labels.astype(np.int32), broken)
        losses.append(each.numpy())
        totals.append(total.numpy()[:, :, 0].transpose(2, 0, 1).ravel())
    weights = [[v.numpy().ravel() for v in variables] for variables, _ in replicas.copies]
    groups = {
        "classes": [[count, [list(group) for group in split_classes(count)]]],
        "losses": [[given, losses]],
        "gradients": [[given, totals]],
        "weights": [[given, weights]],
    }
    run_in_node("replicas", groups, tmp_path)


def test_a_page_trains_without_a_kernel_forgets_and_repairs(data, show_page, tmp_path):
    from distlab.explorables.page_replicas import RECORDING, write_page_replicas

    path = tmp_path / "page.html"
    path.write_text(f"<!doctype html><body>{write_page_replicas(data, RECORDING.as_uri())}</body>")
    page = show_page()
    wrong = watch(page)
    page.goto(path.as_uri())

    def read():
        words = page.locator("canvas").get_attribute("aria-label") or "Step 0."
        shares = [int(share) for share in re.findall(r"(\d+)% right", words)]
        return int(re.match(r"Step (\d+)", words)[1]), shares, words

    def wait(ready):
        wait_for(lambda: (page.wait_for_timeout(50), ready())[1], seconds=120)

    wait(lambda: read()[0] > 60 and min(read()[1]) > 55)
    assert "copies' filters: 0." in read()[2]
    knew, begun = min(read()[1]), read()[0]
    page.get_by_label("Break the all-reduce").click()
    wait(lambda: read()[0] > begun + 20 and min(read()[1]) < knew - 8)
    wait(lambda: "forgets" in page.locator(".ex p[role=status]").first.inner_text())
    page.get_by_label("Break the all-reduce").click()
    wait(lambda: "stay apart" in page.locator(".ex p[role=status]").first.inner_text())
    page.get_by_role("button", name="Pause").click()
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    stopped = read()[0]
    page.wait_for_timeout(300)
    assert read()[0] == stopped
    page.get_by_label("3", exact=True).check()
    wait(lambda: read()[0] == 1 and len(read()[1]) == 3)
    page.get_by_role("button", name="Train on").click()
    wait(lambda: read()[0] > 2)
    assert wrong == []
