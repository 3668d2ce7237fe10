"""Input pipelines: shards, the ladder's same elements, the slow store, traces, mixing, what-if."""

import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from utils.data import load
from utils.errors import DistributedError
from utils.input_pipeline import LOCAL, Store, store, write_shards
from utils.input_pipeline.chain import as_written
from utils.input_pipeline.examples import sort_rows
from utils.input_pipeline.ladder import (
    LADDER,
    autotuned,
    batched_first,
    cached,
    mapped_in_parallel,
    naive,
    tuned,
)
from utils.input_pipeline.measuring import (
    Rates,
    classes_per_batch,
    count_elements,
    ids_of,
    make_limit,
    measure_rates,
    shuffle_quality,
)
from utils.input_pipeline.parsing import augment, augment_batch, parse_batch
from utils.input_pipeline.store import read_shard
from utils.input_pipeline.trace import timeline_rows, trace
from utils.simulate.input import InputChoice, InputCosts, simulate_input

EXAMPLES, BATCH = 200, 32
SLOW_HERE = Store(open_seconds=0.03, block_seconds=0.01, block_records=10)


@pytest.fixture(scope="module")
def split():
    return load("fashion_mnist").train.take(EXAMPLES)


@pytest.fixture(scope="module")
def shards(split, tmp_path_factory):
    return write_shards(split, tmp_path_factory.mktemp("shards") / "new", shards=5)


def wanted_elements(split):
    rows = [one.tobytes() for one in sort_rows(split.images[..., None])]
    keys = zip(range(len(split)), split.labels.tolist(), rows)
    return Counter(keys)


def test_shards_hold_every_example_once_in_order(split, shards, tf):
    assert len(shards.files) == 5 and shards.examples == EXAMPLES and shards.bytes > 10_000
    records = [tf.data.TFRecordDataset(name) for name in shards.files]
    assert [sum(1 for _ in file) for file in records] == [40] * 5
    assert sum(ids_of(naive(shards)), []) == list(range(EXAMPLES))
    twice = shards.repeat(2)
    assert twice.examples == 400 and sum(ids_of(naive(twice)), []) == [*range(EXAMPLES)] * 2


def test_shards_are_written_in_the_order_asked_for(split, tmp_path):
    order = np.argsort(split.labels, kind="stable")
    sorted_shards = write_shards(split, tmp_path, shards=3, order=order)
    assert sum(ids_of(naive(sorted_shards)), []) == order.tolist()
    assert count_elements(naive(sorted_shards)) == wanted_elements(split)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"shards": 0}, "shards must be a whole number from 1 to 200"),
        ({"shards": 201}, "shards must be a whole number from 1 to 200"),
        ({"order": np.zeros(EXAMPLES, int)}, "each number from 0 to 199 once"),
    ],
)
def test_shards_that_cannot_be_are_refused(split, tmp_path, settings, says):
    with pytest.raises(DistributedError, match=says):
        write_shards(split, tmp_path / "new", **settings)
    assert not (tmp_path / "new").exists()


def test_shards_are_not_overwritten_and_a_file_is_no_folder(split, shards, tmp_path):
    with pytest.raises(DistributedError, match="exists already and isn't overwritten"):
        write_shards(split, Path(shards.files[0]).parent, shards=5)
    (tmp_path / "file").write_text("")
    with pytest.raises(DistributedError, match="can't be written"):
        write_shards(split, tmp_path / "file", shards=5)


@pytest.mark.parametrize("store", [LOCAL, SLOW_HERE], ids=["local", "slow"])
@pytest.mark.parametrize("name", LADDER)
def test_every_variant_delivers_the_same_elements_each_epoch(split, shards, name, store):
    dataset = as_written(LADDER[name](shards, store, BATCH))
    first, second = count_elements(dataset), count_elements(dataset)
    assert first == second == wanted_elements(split)


def test_so_does_what_is_left_to_tensorflow(split, shards):
    assert count_elements(autotuned(shards, LOCAL, BATCH)) == wanted_elements(split)


def test_a_missing_or_changed_example_is_noticed(split, shards):
    """The comparison of multisets can fail: one example less, twice, or with another's pixels."""
    wanted = wanted_elements(split)
    assert count_elements(naive(shards).unbatch().skip(1).batch(BATCH)) != wanted
    assert count_elements(naive(shards).take(1).concatenate(naive(shards))) != wanted
    darker = naive(shards).map(lambda images, labels, ids: (images * 0.9, labels, ids))
    assert count_elements(darker) != wanted


def test_both_augmentations_flip_and_shift_and_nothing_else(tf, split):
    images = split.images[:50, ..., None]
    possible = [variants(image) for image in images]
    ones = [augment(tf.constant(image), 0, 0)[0].numpy() for image in images]
    batch = augment_batch(tf.constant(images), tf.zeros(50), tf.zeros(50))[0].numpy()
    for result in (ones, batch):
        seen = [np.round(image * 255).astype(np.uint8).tobytes() for image in result]
        assert all(a in b for a, b in zip(seen, possible))
        places = {b.index(a) for a, b in zip(seen, possible)}
        assert len(places) >= 5, "hardly anything is drawn at random"
    assert batch.dtype == np.float32 and batch.max() <= 1


def variants(image):
    both = (image, image[:, ::-1])
    return [np.roll(i, shift, axis=1).tobytes() for i in both for shift in range(-2, 3)]


def test_a_cache_after_augmentation_freezes_it_and_one_before_does_not(tf, shards):
    tf.random.set_seed(None)  # another file's seed would replay the draws in every epoch

    def different_epochs(make):
        dataset = as_written(make(shards, LOCAL, BATCH))
        epochs = [np.concatenate([b[0] for b in dataset.as_numpy_iterator()]) for _ in range(2)]
        return (epochs[0] != epochs[1]).any(axis=(1, 2, 3)).mean()

    assert different_epochs(lambda *source: batched_first(*source).cache()) == 0
    assert different_epochs(cached) > 0.5


def test_a_global_seed_replays_the_same_draws_in_every_epoch(tf, shards):
    """Lesson 12 shows it: with `tf.random.set_seed`, a random map is the same each epoch."""

    def versions():
        images = tf.data.TFRecordDataset(shards.files[0]).batch(40).map(parse_batch)
        dataset = as_written(images.map(augment_batch))
        epochs = [next(dataset.as_numpy_iterator())[0] for _ in range(2)]
        return (epochs[0] != epochs[1]).any(axis=(1, 2, 3)).mean()

    tf.random.set_seed(0)
    try:
        assert versions() == 0
    finally:
        tf.random.set_seed(None)
    assert versions() > 0.5


def test_a_cache_counts_only_once_its_input_was_read_to_the_end(tf):
    calls = tf.Variable(0)

    def counted(number):
        calls.assign_add(1)
        return number

    numbers = tf.data.Dataset.range(50).map(counted)
    for dataset, wanted in ((numbers.cache().take(9), 18), (numbers.take(9).cache(), 9)):
        calls.assign(0)
        assert [len(list(as_written(dataset))) for _ in range(2)] == [9, 9]
        assert int(calls) == wanted


def test_tuned_gives_another_order_and_other_company_each_epoch(shards):
    dataset = as_written(tuned(shards, LOCAL, BATCH))
    first, second = ids_of(dataset), ids_of(dataset)
    assert [set(a) for a in first] != [set(b) for b in second]
    kept = as_written(cached(shards, LOCAL, BATCH))
    assert ids_of(kept) == ids_of(kept)


def test_the_slow_store_waits_as_long_as_it_says(tf, shards):
    """Measured: a shard of 40 takes its opening and four blocks, and eight at once overlap."""
    from utils.measure import Stopwatch

    def read_all(dataset):
        with Stopwatch() as watch:
            count = sum(1 for _ in as_written(dataset))
        return count, watch.seconds

    assert SLOW_HERE.wait_seconds(40) == pytest.approx(0.07)
    count, seconds = read_all(read_shard(shards.files[0], SLOW_HERE))
    assert count == 40 and seconds >= 0.07
    naive_seconds = read_all(naive(shards, SLOW_HERE, BATCH))[1]
    assert naive_seconds >= 5 * 0.07, "one shard after another: the waits add up"


def test_rates_take_turns_and_compare_within_a_round(shards):
    rates = measure_rates({"naive": as_written(naive(shards)), "cache": cached(shards)}, rounds=2)
    for found in (rates.by_name, rates.by_processor):
        assert all(len(values) == 3 and min(values) > 0 for values in found.values())
    by_hand = Rates({"a": (9.0, 10.0, 20.0, 30.0), "b": (9.0, 20.0, 20.0, 90.0)})
    assert by_hand.median("a") == 20 and by_hand.first("b") == 9 and by_hand.ratio("b", "a") == 2
    assert Rates({}, by_hand.by_name).processor_ratio("b", "a") == 2


def test_the_limit_is_as_long(shards):
    assert sum(1 for _ in make_limit(naive(shards, LOCAL, BATCH))) == 7


def test_a_trace_has_every_piece_of_work_in_the_order_it_happened(shards):
    spans = trace(naive(shards, SLOW_HERE, BATCH), steps=3, step_seconds=0.004)
    counts = Counter(span.stage for span in spans)
    assert counts == {"read": 96, "parse": 96, "augment": 96, "wait": 3, "step": 3}
    work = sorted((s for s in spans if s.stage != "wait"), key=lambda s: s.start)
    assert all(a.end <= b.start + 2e-4 for a, b in zip(work, work[1:])), "one thing at a time"
    reading = sum(span.seconds for span in spans if span.stage == "read")
    assert reading >= 2 * 0.03 + 9 * 0.01, "96 records: three shards begun, ten blocks waited for"
    assert all(span.seconds >= 0.004 for span in spans if span.stage == "step")
    assert min(span.start for span in spans) == 0


def test_a_trace_of_parallel_reading_overlaps(shards, tf, monkeypatch):
    begun = set()

    def look(name, tick):
        begun.add(name)
        return len(begun) < 5

    def delay_until_five_have_begun(dataset, seconds):
        if seconds != SLOW_HERE.open_seconds:
            return dataset
        return dataset.flat_map(
            lambda name: (
                delay(tf.data.Dataset.range(9000), 0.02)
                .take_while(lambda tick: tf.numpy_function(look, [name, tick], tf.bool))
                .filter(lambda tick: tick < 0)
                .map(lambda tick: name)
                .concatenate(tf.data.Dataset.from_tensors(name))
            )
        )

    delay = store.delay
    monkeypatch.setattr(store, "delay", delay_until_five_have_begun)
    spans = trace(mapped_in_parallel(shards, SLOW_HERE, BATCH), steps=5)
    counts = Counter(span.stage for span in spans)
    assert counts["augment"] == counts["parse"] == 160 == counts["read"]
    first = sorted((s.start, s.end) for s in spans if s.stage == "read")[:5]
    assert first[4][0] < min(end for _, end in first), "five shards are opened at once"
    rows = timeline_rows(spans, ["read", "parse", "step"])
    assert {lane for lane, *_ in rows} >= {"read", "read 2", "read 5", "parse"}
    for lane in {row[0] for row in rows}:
        mine = sorted(row[1:3] for row in rows if row[0] == lane)
        assert all(a[1] <= b[0] + 1e-3 for a, b in zip(mine, mine[1:])), "lanes do not overlap"


def test_a_trace_leaves_out_what_a_cache_remembers(tf, shards):
    dataset = tf.data.Dataset.range(6).map(double).cache().batch(2)
    assert Counter(s.stage for s in trace(dataset, 3))["double"] == 6
    with pytest.raises(DistributedError, match="batches, got 7"):
        trace(naive(shards, LOCAL, BATCH), 9)


def double(number):
    return number * 2


def test_shuffle_quality_is_0_in_order_and_1_on_average():
    rng = np.random.default_rng(0)
    assert shuffle_quality(range(50)) == 0
    mean = np.mean([shuffle_quality(rng.permutation(50)) for _ in range(2000)])
    assert mean == pytest.approx(1, abs=0.01)


def test_a_larger_buffer_mixes_better(tf):
    def quality(buffer):
        order = tf.data.Dataset.range(1000).shuffle(buffer, seed=1).as_numpy_iterator()
        return shuffle_quality(list(order))

    small, middle, whole = (quality(buffer) for buffer in (10, 100, 1000))
    assert 0 < small < 0.1 < middle < 0.6 < whole


def test_classes_per_batch_counts_labels():
    assert classes_per_batch([0, 0, 1, 2, 9], 2) == 1.5


COSTS = InputCosts(1e-3, 2e-4, 1e-4)


@pytest.mark.parametrize(
    ("choice", "batch_seconds", "bottleneck"),
    [
        (InputChoice(), 10 * 1.3e-3 + 0.002, "read"),
        (InputChoice(prefetch=2), 10 * 1.3e-3, "read"),
        (InputChoice(reads=10), 10 * 3e-4 + 0.002, "map"),
        (InputChoice(reads=10, prefetch=1), 10 * 3e-4, "map"),
        (InputChoice(reads=6, calls=8, prefetch=2), 0.002, "step"),
        (InputChoice(calls=8, prefetch=2), 10 * 1e-3, "read"),
        (InputChoice(cache="decoded"), 10 * 1e-4 + 0.002, "step"),
        (InputChoice(cache="augmented", prefetch=1), 0.002, "step"),
        (InputChoice(shuffle=40), 10 * 1.3e-3 + 0.002, "read"),
    ],
)
def test_the_model_of_an_input_pipeline(choice, batch_seconds, bottleneck):
    """In closed form: what overlaps takes the longest of its parts, what doesn't their sum."""
    found = simulate_input(COSTS, choice, cores=2, step_seconds=0.002, batch=10, batches=40)
    steady = np.diff(found.ends)[5:20]  # the buffer is full, and the source hasn't ended
    assert steady == pytest.approx(batch_seconds)
    assert found.bottleneck == bottleneck
    if choice.shuffle == 1:
        assert found.batch_seconds == pytest.approx(batch_seconds)
        assert found.starved == pytest.approx(1 - 0.002 / batch_seconds, abs=1e-9)


def test_each_element_passes_each_machine_in_turn_and_no_machine_holds_too_many():
    rng = np.random.default_rng(0)
    for reads, calls, shuffle, prefetch in rng.integers(1, (9, 9, 17, 4), (20, 4)).tolist():
        choice = InputChoice(reads, calls, shuffle, prefetch)
        found = simulate_input(
            COSTS,
            choice,
            cores=3,
            step_seconds=0.004,
            batch=4,
            batches=8,
            factors=rng.exponential(size=(32, 2)),
            picks=rng.random(32),
        )
        assert sorted(found.order) == list(range(32))
        emitted = np.empty(32)
        emitted[found.order] = found.emitted
        times = (found.read_begins, found.read_ends, found.map_begins, found.map_ends)
        for before, after in pairwise([*times, found.pulled, emitted]):
            assert (np.asarray(before) <= np.asarray(after) + 1e-12).all()
        held = (
            (found.read_begins, found.read_ends, reads),
            (found.map_begins, found.map_ends, min(calls, 3)),
            (found.read_ends, found.pulled, reads + calls),
            (found.ready, found.starts, prefetch),
        )
        for enters, leaves, most in held:
            at = np.asarray(enters)[:, None] + 1e-12
            inside = (np.asarray(enters) < at) & (at < np.asarray(leaves))
            assert inside.sum(axis=1).max() <= most
        assert all(b - a >= 0.004 - 1e-12 for a, b in pairwise(found.ends))


def test_no_pipeline_is_faster_than_the_model_of_its_delays(tf):
    """Sleeping stages, whose costs are known, against the clock: with and without prefetch."""
    from utils.input_pipeline.store import delay
    from utils.input_pipeline.tuning import run_for

    costs = InputCosts(0.004, 0, 0)
    read = delay(tf.data.Dataset.range(100), 0.004).batch(5)
    for choice, dataset in (
        (InputChoice(), as_written(read)),
        (InputChoice(prefetch=2), as_written(read.prefetch(2))),
    ):
        wanted = simulate_input(costs, choice, cores=2, step_seconds=0.02, batch=5).batch_seconds
        seen = run_for(dataset, 5, step_seconds=0.02).seconds_per_batch
        assert wanted * 0.95 <= seen  # no upper limit: a busy machine is slower


@pytest.mark.parametrize("prefetch", [0, 2])
def test_prefetch_reads_ahead_of_the_step(tf, prefetch):
    """The overlap in the model is real: batches are read while a step lasts."""
    read = []

    def note(number):
        read.append(number)
        return number

    data = tf.data.Dataset.range(100).map(lambda n: tf.numpy_function(note, [n], tf.int64)).batch(5)
    batches = iter(as_written(data.prefetch(prefetch) if prefetch else data))
    next(batches)
    deadline = time.monotonic() + 60
    while prefetch and len(read) < 15 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(read) == 5 + 5 * prefetch
