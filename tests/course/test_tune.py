"""`tune` and `distlab tune-input`: chains taken apart, rebuilt, measured; output; clear errors."""

import json
import sys
import time
from dataclasses import replace

import pytest

from distlab.cli import main
from utils.data import load
from utils.errors import DistributedError
from utils.input_pipeline import TuneSettings, tune, write_shards
from utils.input_pipeline import costs as costs_room
from utils.input_pipeline.chain import take_apart
from utils.input_pipeline.costs import make_timer, measure_costs, split_times
from utils.input_pipeline.ladder import as_written, naive, tuned
from utils.input_pipeline.measuring import count_elements, ids_of
from utils.input_pipeline.parsing import augment, batch_form, parse
from utils.input_pipeline.rebuild import AUTOTUNE, rebuild, write_code
from utils.input_pipeline.store import delay
from utils.input_pipeline.tuning import (
    Comparison,
    Pace,
    _Search,
    compare,
    find_cache_place,
    run_for,
)


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    split = load("fashion_mnist").train.take(240)
    return write_shards(split, tmp_path_factory.mktemp("shards"), shards=4)


def double_all(numbers):
    return numbers * 2


@batch_form(double_all)
def double(number):
    return number * 2


def noise(number):
    import tensorflow as tf

    return number + tf.cast(tf.random.uniform([]) * 0, number.dtype)


def names(stages):
    return [stage.name for stage in stages]


def test_a_chain_is_taken_apart_and_names_its_functions(shards):
    stages = take_apart(naive(shards))
    assert names(stages) == [
        "TensorSliceDataset",
        "read lambda",
        "map parse",
        "map augment",
        "batch 128",
    ]
    assert [stage.random for stage in stages] == [False, False, False, True, False]
    assert stages[2].function is parse and stages[3].function is augment
    assert [stage.batch_form is not None for stage in stages] == [False, False, True, True, False]


def test_every_kind_of_stage_comes_back_as_it_was(tf, shards):
    numbers = tf.data.Dataset.range(40)
    chains = {
        "plain": numbers.map(double).filter(lambda n: n % 4 == 0).skip(1).take(9).batch(4),
        "drop": numbers.batch(7, drop_remainder=True).cache().prefetch(2),
        "parallel": numbers.map(double, 2).batch(4, num_parallel_calls=2).repeat(2),
        "same name": numbers.map(double).map(double),
        "nested": numbers.batch(10).flat_map(tf.data.Dataset.from_tensor_slices).batch(3),
        "interleave": numbers.interleave(lambda n: tf.data.Dataset.range(n, n + 3), 4, 2),
        "fixed shuffle": numbers.shuffle(5, seed=1).map(double),
        "file reader": tf.data.TFRecordDataset(list(shards.files)).map(parse).batch(9),
        "unknown": numbers.window(3).flat_map(lambda w: w.batch(3)).map(double),
    }
    for name, chain in chains.items():
        again = rebuild(take_apart(chain), TuneSettings())
        assert again.element_spec == chain.element_spec, name
        assert flat(again) == flat(chain), name
    assert names(take_apart(chains["same name"]))[1:] == ["map double", "map double (2)"]
    assert names(take_apart(chains["unknown"]))[0] == "WindowDataset"


def flat(dataset):
    return [repr(element) for element in dataset.as_numpy_iterator()]


@pytest.mark.parametrize(
    "settings",
    [
        TuneSettings(read_calls=4),
        TuneSettings(map_calls=2),
        TuneSettings(map_calls=AUTOTUNE, prefetch=AUTOTUNE),
        TuneSettings(batch_first=True),
        TuneSettings(cache_after="map parse"),
        TuneSettings(4, 2, True, "map parse", 2),
    ],
)
def test_rebuilt_chains_deliver_the_same_elements(shards, settings):
    dataset = naive(shards)
    again = rebuild(take_apart(dataset), settings)
    assert count_elements(again) == count_elements(dataset) == count_elements(again)
    if settings.read_calls == 0:
        assert ids_of(again) == ids_of(dataset), "order kept where shards are read one by one"


def test_the_code_printed_is_the_pipeline_measured(tf, shards):
    settings = TuneSettings(4, 2, True, "map parse", AUTOTUNE)
    stages = take_apart(naive(shards))
    code = write_code(stages, settings)
    assert ".interleave(your_lambda, cycle_length=4, num_parallel_calls=4)" in code
    assert code.index(".batch(128)") < code.index("parse_batch") < code.index(".cache()")
    assert code.endswith("dataset.prefetch(AUTOTUNE)")
    from utils.input_pipeline.parsing import augment_batch, parse_batch

    runs = code.replace("dataset = ...", "dataset = tf.data.Dataset.from_tensor_slices(files)")
    given = {
        "tf": tf,
        "files": list(shards.files),
        "your_lambda": tf.data.TFRecordDataset,
        "parse_batch": parse_batch,
        "augment_batch": augment_batch,
    }
    exec(runs, given)
    assert count_elements(given["dataset"]) == count_elements(naive(shards))


def test_code_of_a_file_reader_and_a_repeat(tf, shards):
    chain = tf.data.TFRecordDataset(list(shards.files)).map(parse).repeat()
    code = write_code(take_apart(chain), TuneSettings(read_calls=4))
    assert code.split("\n") == [
        "dataset = tf.data.TFRecordDataset(files, num_parallel_reads=4)",
        "dataset = dataset.map(parse)",
        "dataset = dataset.repeat()",
    ]


def test_a_cache_is_placed_only_before_what_changes(tf):
    numbers = tf.data.Dataset.range(9)

    def place(dataset, batch_first=False):
        return find_cache_place(take_apart(dataset), batch_first)[0]

    assert place(numbers.map(double).map(noise).batch(2)) == "map double"
    assert place(numbers.map(noise).map(double).batch(2)) == ""
    assert place(numbers.shuffle(3).map(double).batch(2)) == ""
    assert place(numbers.batch(2).map(double)) == ""
    assert place(numbers.map(double).batch(2), batch_first=True) == "map double"
    with pytest.raises(DistributedError, match="cache_after must be one of map double"):
        rebuild(take_apart(numbers.map(double)), TuneSettings(cache_after="map parse"))


def test_stage_costs_are_named_and_add_up_to_the_chain(tf):
    """A sleep of 5 ms in the last stage: however busy the machine is, the whole takes as long."""

    def rest(number):
        return tf.numpy_function(lambda n: (time.sleep(0.005), n)[1], [number], tf.int64)

    def read(number):
        return delay(tf.data.Dataset.from_tensors(number), 0.001)

    chain = tf.data.Dataset.range(10**6).flat_map(read).map(double).map(rest)
    costs = {cost.name: cost.seconds_per_image for cost in measure_costs(take_apart(chain), 1)}
    assert list(costs) == ["read read", "map double", "map rest"]
    assert sum(costs.values()) >= 0.005 and min(costs.values()) >= 0


def test_costs_count_the_images_of_a_batch_and_leave_out_the_start(tf, monkeypatch):
    """By a clock that is given: 3 s to start, then 20 ms for each element."""
    real, asked, there = costs_room._time, [], 40

    def time_by_hand(walk, most):
        asked.append(most)
        return 3 + 0.02 * min(most, there), real(walk, most)[1]

    monkeypatch.setattr(costs_room, "_time", time_by_hand)
    batches = tf.data.Dataset.range(800).batch(20)
    assert make_timer(as_written(batches), 1, "batches")() == pytest.approx(0.001)
    numbers = tf.data.Dataset.range(40)
    assert make_timer(as_written(numbers), 1, "numbers")() == pytest.approx(0.02)
    assert asked[:3] == [1, 1, 2] and asked[-2:] == [1, 64], "doubled until it ends"


def test_run_for_ends_in_time_or_at_the_end(tf):
    endless = tf.data.Dataset.range(4).batch(2).repeat()
    pace = run_for(endless, 0.2, step_seconds=0.01)
    assert not pace.ended and pace.images == 2 * pace.batches
    assert pace.seconds_per_batch >= 0.01
    short = run_for(tf.data.Dataset.range(6).batch(2), 600)
    assert short.ended and short.batches == 2 and short.images == 4
    single = run_for(tf.data.Dataset.range(2).batch(2), 600)
    assert single.ended and (single.batches, single.images) == (1, 2)


def test_compare_takes_turns_and_the_middle_of_three_rounds(tf, monkeypatch):
    paces = {"slow": iter([1, 9, 2]), "fast": iter([8, 8, 40])}  # images per second, by hand
    turns = []

    def run_by_hand(dataset, seconds, step_seconds):
        turns.append(dataset)
        return Pace(1, 1, 1 / next(paces[dataset]), False)

    monkeypatch.setattr("utils.input_pipeline.tuning.run_for", run_by_hand)
    seen = compare("slow", "fast", 0.6, 0)
    assert turns == ["slow", "fast", "fast", "slow", "slow", "fast"]
    assert seen.ratio == 8 and seen.images_per_second == (2, 8)


@pytest.fixture
def measured(monkeypatch):
    """`measured(find_seconds)`: datasets are built for real, and their seconds are given.

    `find_seconds(settings)` returns the seconds of a batch under these settings of the stages;
    a loop over ready tensors takes 1 ms, and so does an element of each beginning of the chain.
    """
    monkeypatch.setattr(
        "utils.input_pipeline.costs.make_timer", lambda dataset, seconds, name: lambda: 0.001
    )

    def give(find_seconds):
        built = {}

        def build(stages, settings, **more):
            dataset = rebuild(stages, settings, **more)
            built[id(dataset)] = dataset, settings
            return dataset

        def run_by_hand(dataset, seconds, step_seconds=0.0):
            _, settings = built.get(id(dataset), (None, None))
            passed = 0.001 if settings is None else find_seconds(settings)
            return Pace(10, 10 * 8, 10 * (passed + step_seconds), True)

        monkeypatch.setattr("utils.input_pipeline.tuning.rebuild", build)
        monkeypatch.setattr("utils.input_pipeline.tuning.run_for", run_by_hand)

    return give


def test_tune_finds_that_reading_waits_and_reads_shards_at_once(tf, measured, monkeypatch):
    """16 files of 4 records each, 20 ms to open: only overlap helps."""

    def read(number):
        return tf.data.Dataset.from_tensors(number).flat_map(lambda n: tf.data.Dataset.range(4))

    def make_dataset():
        return tf.data.Dataset.range(16).flat_map(read).map(noise).batch(8)

    def time_by_hand(dataset, seconds, name):
        return lambda: {"read read": 0.005, "map noise": 0.0051, "batch 8": 0.0051}[name]

    monkeypatch.setattr("utils.input_pipeline.costs.make_timer", time_by_hand)
    measured(lambda settings: 0.04 / max(1, min(settings.read_calls, 8)) + 0.001)
    report = tune(make_dataset, seconds=600)
    assert report.bottleneck == "read read" and report.settings.read_calls == 16
    assert report.tuned > 1.5 * report.as_written and 0 < report.share_of_limit < 1
    assert any(trial.kept and "shards read at once" in trial.change for trial in report.trials)
    text = str(report)
    assert "<- the bottleneck" in text and "num_parallel_calls" in text and "ready tensors" in text
    assert json.loads(json.dumps(report.to_dict()))["bottleneck"] == "read read"


def test_tune_says_when_the_step_is_the_bottleneck(tf, measured):
    measured(lambda settings: 0.0011)
    report = tune(lambda: tf.data.Dataset.range(400).map(double).batch(4), 0.05, seconds=600)
    assert report.bottleneck == "the step" and report.tuned <= report.limit
    assert "the step takes longer than all of them" in str(report)
    nothing, little = (replace(report.costs[0], seconds_per_image=s) for s in (0.0, 6e-8))
    text = str(replace(report, costs=(nothing, little)))
    assert text.count("too little to measure") == 1 and "     0.1" in text and " 0.0\n" not in text


def test_the_search_stops_when_a_batch_is_as_fast_as_a_ready_one(tf):
    search = _Search(take_apart(tf.data.Dataset.range(4).map(double).batch(2)), 0.01, 5, 1e9)
    search.ready_seconds, search.batch_seconds = 1.0, 1.04
    search.run()
    assert search.notes == ["the step no longer waits: nothing more was tried"]
    assert search.trials == [] and search.settings == TuneSettings()
    search.batch_seconds = 1.06
    assert not search.keeps_up()


def test_tune_caches_what_is_the_same_each_time(tf, measured):
    def rest(number):
        return tf.numpy_function(lambda n: (time.sleep(0.002), n)[1], [number], tf.int64)

    def make_dataset():  # a numpy_function has a state: TensorFlow can't know what it does
        return tf.data.Dataset.range(60).map(double).map(noise).batch(6)

    stages = take_apart(make_dataset().map(rest))
    assert [s.random for s in stages] == [False, False, True, False, True]
    measured(lambda settings: 0.01 if settings.cache_after else 0.03)
    report = tune(make_dataset, seconds=600)
    assert report.settings.cache_after == "map double", report.notes
    tight = tune(make_dataset, seconds=600, max_cache_bytes=100)
    assert not tight.settings.cache_after and "no cache: an epoch of 0 MB" in tight.notes[-1]


def test_tune_ends_on_an_endless_dataset(tf):
    report = tune(lambda: tf.data.experimental.Counter().map(double).batch(8), seconds=1)
    assert report.tuned > 0 and report.notes and not report.settings.cache_after


def test_tune_leaves_a_tuned_pipeline_its_stages(shards):
    code = write_code(take_apart(tuned(shards)), TuneSettings())
    for piece in ("num_parallel_calls=8", "cache('')", "shuffle(240", "prefetch(2)"):
        assert piece in code


def test_the_code_to_copy_keeps_a_seed(tf):
    seeded = tf.data.Dataset.range(40).shuffle(5, seed=1)
    assert "dataset.shuffle(5, seed=1)" in write_code(take_apart(seeded), TuneSettings())


def test_a_pipeline_that_nothing_makes_faster_is_left_as_it_is(tf, monkeypatch, measured):
    """A trial that looked better by chance isn't believed: the last comparison decides."""
    ratios = iter([1.5, *[0.9] * 20])

    def compare_by_hand(best, other, seconds, step_seconds):
        ratio = next(ratios)
        return Comparison(ratio, (0.1, 0.1 / ratio), (100.0, 100.0 * ratio))

    measured(lambda settings: 0.08)
    monkeypatch.setattr("utils.input_pipeline.tuning.compare", compare_by_hand)
    said = []
    report = tune(
        lambda: tf.data.Dataset.range(400).map(double).batch(4), seconds=600, say=said.append
    )
    assert [trial.kept for trial in report.trials][:2] == [True, False]
    assert not report.improved and report.settings == TuneSettings()
    assert report.tuned == report.as_written == 100.0
    assert "no faster than the pipeline as written" in report.notes[-1]
    text = str(report)
    assert "nothing better found" in text and "×0.9\n" not in text and "dataset =" not in text
    assert said[0].startswith("as written: ") and "tried" in said[-1] and len(said) > 3


def test_no_stage_costs_more_than_the_whole(tf, shards, monkeypatch):
    """The beginnings of the chain take turns; what a busy moment does to one doesn't count."""
    microseconds = {
        "read lambda": (326, 20, 400),
        "map parse": (105, 900, 120),
        "map augment": (990, 160, 170),
        "batch 128": (170, 155, 160),
    }
    turns = []

    def make_timer_by_hand(dataset, seconds, name):
        times = iter(microseconds[name])
        return lambda: turns.append(name) or 1e-6 * next(times)

    monkeypatch.setattr("utils.input_pipeline.costs.make_timer", make_timer_by_hand)
    costs = measure_costs(take_apart(naive(shards)))
    assert turns == 3 * [*microseconds]
    found = [1e6 * cost.seconds_per_image for cost in costs]
    assert found == pytest.approx([20, 85, 50, 0]) and sum(found) == pytest.approx(155)
    assert split_times([0.3, 0.1, 0.1, 0.2]) == pytest.approx([0.1, 0, 0, 0.1])


# ---- the command


INPUT = """
import tensorflow as tf

def double(n):
    return 2 * n

def make_dataset():
    return tf.data.Dataset.range(500).map(double).batch(10)
"""


def test_the_command_prints_a_report(tmp_path, monkeypatch, capsys):
    (tmp_path / "my_input_for_tune.py").write_text(INPUT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    arguments = ["tune-input", "my_input_for_tune:make_dataset", "--seconds", "1", "--step-ms", "2"]
    assert main(arguments) == 0
    assert "a step of 2 ms" in capsys.readouterr().out
