"""Scenes with masks: drawn, stored, read; the U-Net trains on them as by hand, anywhere."""

import functools
import itertools

import numpy as np
import pytest
from test_training import assert_same_weights, train_plainly
from untested import leave_out_test_data

from utils import models
from utils.cluster import LocalCluster
from utils.data import load, load_scenes, open_data
from utils.data.masks import count_pixels, score_masks
from utils.data.scenes import MASK_CLASSES, MIN_INK
from utils.errors import InputError
from utils.input_pipeline.scenes import parse_scene, read_scenes, write_scenes
from utils.training import train

LIMIT, BATCH, EPOCHS = 22, 7, 2  # two replicas divide neither 7 nor the last batch's 1
JOB = {
    "dataset": "fashion-scenes",
    "model": "unet",
    "dtype": "float64",
    "optimizer": "sgd",
    "max_examples": LIMIT,
    "global_batch_size": BATCH,
    "epochs": EPOCHS,
}
TINY = functools.partial(models.build_unet, widths=(3, 5))


# --- drawing ------------------------------------------------------------------------------


def test_a_scene_depends_on_seed_and_number_alone():
    scenes = load_scenes(train=20, test=10)
    for number in (0, 7, 19):
        again = load_scenes(train=500).train.draw(number)
        for got, wanted in zip(scenes.train.draw(number), again, strict=True):
            np.testing.assert_array_equal(got, wanted)
    images = [image.tobytes() for image, _ in itertools.chain(scenes.train, scenes.test)]
    assert len(set(images)) == 30
    assert scenes.train.digest() != scenes.train.take(19).digest()


def test_a_mask_says_what_each_pixel_shows():
    """Of a scene with one class of garment, that garment's pixels stand where the mask is."""
    garments = load("fashion_mnist").train
    pictures = {
        image[image >= MIN_INK].tobytes(): label
        for image, label in zip(garments.images, garments.labels)
    }
    classes, checked = set(), 0
    for image, mask in load_scenes(train=60).train:
        assert image.shape == mask.shape == (64, 64) and image.dtype == mask.dtype == np.uint8
        shown = set(mask.ravel().tolist()) - {0}
        assert 1 <= len(shown) <= 3 and image[mask > 0].min() >= MIN_INK
        classes |= shown
        found = pictures.get(image[mask > 0].tobytes())
        if found is not None:
            assert shown == {found + 1}
            checked += 1
    assert classes == set(range(1, MASK_CLASSES)) and checked > 10


def test_training_and_test_scenes_share_no_garment():
    scenes = load_scenes(train=3, test=3)
    data = load("fashion_mnist")
    assert scenes.train.garments is data.train and scenes.test.garments is data.test
    assert (
        len(open_data("fashion-scenes").train) == 6_000
        and len(open_data("fashion-scenes").test) == 1_000
    )
    with pytest.raises(InputError, match="max_examples must be from 1 to 3"):
        scenes.take(0)


# --- scores -------------------------------------------------------------------------------


def test_scores_are_intersections_over_unions():
    rng = np.random.default_rng(3)
    masks, predicted = rng.integers(0, 4, (2, 5, 8, 8))  # classes above 3 are in neither
    score = score_masks(count_pixels(masks, predicted))
    for label in range(4):
        both = np.sum((masks == label) & (predicted == label))
        either = np.sum((masks == label) | (predicted == label))
        assert score.of_class[label] == pytest.approx(both / either)
    assert np.isnan(score.of_class[4:]).all()
    assert score.garments == pytest.approx(np.mean(score.of_class[1:4]))
    worn, found = masks > 0, predicted > 0
    assert score.foreground == pytest.approx(np.sum(worn & found) / np.sum(worn | found))
    right = score_masks(count_pixels(masks, masks))
    assert (right.foreground, right.garments) == (1, 1)


# --- shards -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return write_scenes(load_scenes(train=LIMIT).train, tmp_path_factory.mktemp("s") / "new", 4)


def ids_of(batches):
    return [number for *_, ids in batches for number in ids.numpy().tolist()]


def test_shards_give_every_scene_back_once_in_an_order_of_seed_and_epoch(tf, shards):
    assert len(shards.files) == 4 and shards.examples == LIMIT
    drawn = load_scenes(train=LIMIT).train
    for images, masks, ids in read_scenes(shards, BATCH):
        for image, mask, number in zip(images.numpy(), masks.numpy(), ids.numpy(), strict=True):
            np.testing.assert_array_equal(image[..., 0], drawn.draw(number)[0])
            np.testing.assert_array_equal(mask, drawn.draw(number)[1])
    assert ids_of(read_scenes(shards, BATCH)) == list(range(LIMIT))
    orders = [ids_of(read_scenes(shards, BATCH, key)) for key in ((0, 0), (0, 1), (1, 0))]
    assert all(sorted(order) == list(range(LIMIT)) for order in orders)
    assert orders[0] == ids_of(read_scenes(shards, BATCH, (0, 0)))
    assert len({tuple(order) for order in orders}) == 3
    tf.random.set_seed(5)  # what another part of the program does with seeds changes nothing
    assert orders[0] == ids_of(read_scenes(shards, BATCH, (0, 0)))
    one = next(iter(tf.data.TFRecordDataset(shards.files[0]).map(parse_scene)))
    np.testing.assert_array_equal(one[0][..., 0], drawn.draw(0)[0])
    assert one[1].shape == (64, 64) and int(one[2]) == 0


# --- training -----------------------------------------------------------------------------


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setitem(models.MODELS, "unet", TINY)


@pytest.fixture(scope="module")
def same_shards(tmp_path_factory):
    """The shards that a run writes for itself."""
    return write_scenes(load_scenes(train=LIMIT).train, tmp_path_factory.mktemp("same") / "s")


@pytest.fixture(scope="module")
def by_hand(tf, same_shards):
    orders = [read_scenes(same_shards, BATCH, (0, epoch)) for epoch in range(EPOCHS)]
    batches = ((tf.cast(i, "float64") / 255, m) for order in orders for i, m, _ in order)
    return train_plainly(TINY(seed=0, dtype="float64"), batches, EPOCHS)


def assert_trained(report, by_hand):
    """The loss is over all pixels of the global batch, however it is cut: 7 over 2, then 1."""
    weights, losses = by_hand
    assert_same_weights(report, weights)
    np.testing.assert_allclose(report.loss, losses, atol=1e-5)
    assert report.dataset == "fashion-scenes" and report.examples == LIMIT
    assert 0 <= report.test_garments_iou <= report.test_accuracy <= 1


def test_weights_equal_one_device_with_uneven_batches(tiny, by_hand):
    """The custom loop on two replicas is in the next test."""
    assert_trained(train(strategy="central-storage", replicas=2, loop="fit", **JOB), by_hand)


def test_it_resumes_exports_and_is_scored_as_the_export_is(tiny, tf, by_hand, tmp_path):
    train(**{**JOB, "epochs": 1}, checkpoint_dir=tmp_path / "kept")
    two = {**JOB, "strategy": "mirrored", "replicas": 2}
    report = train(**two, checkpoint_dir=tmp_path / "kept", export=tmp_path)
    assert report.resumed_from is not None
    assert_trained(report, by_hand)
    exported = tf.saved_model.load(str(tmp_path / "saved_model"))
    scenes = load_scenes(train=LIMIT, test=LIMIT).test
    images, masks = (np.array(part) for part in zip(*scenes, strict=True))
    logits = exported.serve(tf.constant(images[..., None] / np.float32(255)))
    score = score_masks(count_pixels(masks, np.argmax(logits, -1)))
    assert report.test_foreground_iou == pytest.approx(score.foreground)
    assert report.test_garments_iou == pytest.approx(score.garments)
    assert f"IoU of foreground {score.foreground:.4f}" in str(report)
    assert '"test_garments_iou"' in report.to_json()


def test_mixed_precision_gives_logits_in_float32(tiny):
    report = train(**{**JOB, "dtype": "mixed_float16", "epochs": 1, "max_examples": BATCH})
    assert np.isfinite(report.loss).all() and report.loss_scale is not None
    assert {weight.dtype for weight in report.weights} == {np.dtype("float32")}


# --- in clusters --------------------------------------------------------------------------


def train_here(jobs):
    """In a task: train job after job with a smaller model."""
    models.MODELS["unet"] = TINY
    reports = []
    for job in jobs:
        if "auto_shard" in job:
            leave_out_test_data()
        reports.append(train(**job))
    return reports


def test_it_trains_on_parameter_servers(by_hand, launcher):
    """With one worker there is nobody to be stale against."""
    with LocalCluster(1, 1, launcher=launcher) as cluster:
        jobs = [{**JOB, "strategy": "parameter-server"}]
        (report,) = cluster.run(train_here, jobs, timeout=300, echo=False)
    assert_trained(report, by_hand)


def test_workers_train_in_each_way_to_shard(by_hand, launcher):
    short = {**JOB, "strategy": "multi-worker", "epochs": 1}
    jobs = [{**short, "epochs": EPOCHS}, {**short, "auto_shard": "file"}]
    jobs += [{**short, "auto_shard": "off", "loop": "fit"}]
    with LocalCluster(2, launcher=launcher) as cluster:
        result = cluster.run(train_here, jobs, timeout=300, echo=False)
    for report, by_file, off in result:
        assert_trained(report, by_hand)
        assert report.test_foreground_iou == result[0][0].test_foreground_iou
        assert (by_file.epochs, off.epochs) == (1, 1)
        assert np.isfinite(by_file.loss + off.loss).all()


# --- settings that don't fit -------------------------------------------------------------
