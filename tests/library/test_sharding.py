"""Who gets which example: views, auto-shard policies, rebatching, two real workers, the service."""

import os
import time

import psutil
import pytest

from distlab.figures import shares
from utils.cluster import LocalCluster
from utils.errors import DistributedError
from utils.input_pipeline.service import (
    DataService,
    consume,
    through_service,
    wait_until_ready,
)
from utils.input_pipeline.sharding import (
    POLICIES,
    all_ids,
    auto_shard,
    check_cover,
    format_ids,
    ids_per_replica,
    last_part,
    shard_examples,
    sharding_options,
)
from utils.strategies import make_strategy


def make_files(tf, folder, files=4, each=8):
    """Write text files of ids: file k holds 8k ... 8k+7."""
    names = []
    for k in range(files):
        names.append(str(folder / f"{k}.txt"))
        ids = range(k * each, (k + 1) * each)
        (folder / f"{k}.txt").write_text("".join(f"{number}\n" for number in ids))
    return names


def read_ids(tf, names):
    lines = tf.data.Dataset.from_tensor_slices(names).flat_map(tf.data.TextLineDataset)
    return lines.map(lambda line: tf.strings.to_number(line, tf.int64))


def test_views_name_what_is_lost_and_what_is_doubled():
    views = {"a": [[0, 1], [2]], "b": [[2, 3], []]}
    cover = check_cover(views, range(6))
    assert (cover.once, cover.lost, cover.doubled) == (3, (4, 5), (2,))
    assert str(cover) == "3 once, lost: 4, 5, more than once: 2"
    assert str(check_cover({"a": [[0, 1]]}, range(2))) == "2 once, none lost, none doubled"
    assert all_ids(views["b"]) == {2, 3}


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ([], "none"),
        ([3], "3"),
        ([1, 0], "0, 1"),
        ([0, 1, 2, 7], "0–2, 7"),
        (range(0, 64, 2), "0, 2, 4 … 62 (steps of 2)"),
        ([0, 2, 5, 9, 14, 20, 27, 35], "0, 2, 5, 9, 14, …, 35"),
    ],
)
def test_ids_are_said_in_short(ids, words):
    assert format_ids(ids) == words


def test_policies_share_files_examples_or_nothing(tf, tmp_path):
    batches = read_ids(tf, make_files(tf, tmp_path)).batch(4)
    file, data, off = (auto_shard(batches, 2, policy) for policy in ("FILE", "DATA", "OFF"))
    assert all_ids(file["worker 0"]) == {*range(0, 8), *range(16, 24)}
    assert data["worker 0"] == [[0, 1, 2, 3], [8, 9, 10, 11], [16, 17, 18, 19], [24, 25, 26, 27]]
    assert str(check_cover(file, range(32))) == "32 once, none lost, none doubled"
    assert check_cover(data, range(32)).once == 32
    assert check_cover(off, range(32)).doubled == tuple(range(32))
    assert auto_shard(batches, 2, "AUTO") == file


@pytest.mark.parametrize(
    ("files", "workers", "batch"), [(4, 2, 4), (3, 2, 4), (5, 3, 3), (8, 4, 5)]
)
def test_dealing_by_counting_is_what_tensorflow_does(tf, tmp_path, files, workers, batch):
    batches = read_ids(tf, make_files(tf, tmp_path, files)).batch(batch)
    parts = [list(range(8 * k, 8 * k + 8)) for k in range(files)]
    for policy in ("FILE", "DATA", "OFF"):
        assert shard_examples(parts, workers, policy, batch) == auto_shard(batches, workers, policy)


def test_to_shuffle_and_then_shard_loses_as_many_as_it_doubles():
    orders = [list(range(32)), list(range(31, -1, -1))]
    views = shard_examples([range(32)], 2, "LATE", 4, orders)
    assert views["worker 1"][0] == [30, 28, 26, 24]
    cover = check_cover(views, range(32))
    assert cover.doubled == tuple(range(0, 32, 2)) and cover.lost == tuple(range(1, 32, 2))


def test_file_needs_files_and_auto_falls_back_to_data(tf, tmp_path):
    batches = read_ids(tf, make_files(tf, tmp_path, files=1)).batch(2)
    for policy in ("FILE", "AUTO"):  # AUTO as well: the source is files
        with pytest.raises(
            DistributedError, match=f"^Policy {policy} failed: Could not apply FILE .* shards"
        ):
            auto_shard(batches, 2, policy)
    numbers = tf.data.Dataset.range(8).batch(2)
    assert auto_shard(numbers, 2, "AUTO") == auto_shard(numbers, 2, "DATA")
    assert all(sharding_options(policy) is not None for policy in POLICIES)


def test_uneven_files_are_uneven_shares(tf, tmp_path):
    batches = read_ids(tf, make_files(tf, tmp_path, files=3)).batch(4)
    views = auto_shard(batches, 2, "FILE")
    assert [len(all_ids(view)) for view in views.values()] == [16, 8]
    assert check_cover(views, range(24)).once == 24


@pytest.fixture(scope="module")
def strategy():
    return make_strategy("mirrored", 3)


def distribute(tf, strategy, examples, batch):
    batches = tf.data.Dataset.range(examples).batch(batch).with_options(sharding_options("OFF"))
    return ids_per_replica(strategy, strategy.experimental_distribute_dataset(batches))


def test_a_global_batch_is_split_first_replicas_first(tf, strategy):
    views = distribute(tf, strategy, 12, 6)
    assert views == {
        "replica 0": [[0, 1], [6, 7]],
        "replica 1": [[2, 3], [8, 9]],
        "replica 2": [[4, 5], [10, 11]],
    }


@pytest.mark.parametrize(("examples", "batch"), [(12, 5), (14, 6), (7, 6), (5, 2)])
def test_batches_that_do_not_divide_lose_nothing(tf, strategy, examples, batch):
    views = distribute(tf, strategy, examples, batch)
    assert check_cover(views, range(examples)).once == examples
    steps = max(len(view) for view in views.values())
    sizes = [[len(view[step]) for view in views.values()] for step in range(steps)]
    assert sum(map(sum, sizes)) == examples
    assert sizes[0] == {5: [2, 2, 1], 6: [2, 2, 2], 2: [1, 1, 0]}[batch]


def test_a_function_of_the_input_context_is_called_once_a_worker_and_cuts_for_itself(tf, strategy):
    contexts = []

    def make(context):
        contexts.append((context.num_input_pipelines, context.num_replicas_in_sync))
        size = context.get_per_replica_batch_size(6)
        numbers = tf.data.Dataset.range(12)
        return numbers.shard(context.num_input_pipelines, context.input_pipeline_id).batch(size)

    distributed = strategy.distribute_datasets_from_function(make)
    views = ids_per_replica(strategy, distributed, steps=2)
    assert contexts == [(1, 3)]
    assert views["replica 1"] == [[2, 3], [8, 9]] and check_cover(views, range(12)).once == 12


def test_one_dataset_a_replica_changes_the_strategy_for_good(tf):
    """TensorFlow 2.21: after PER_REPLICA the strategy hands unsharded datasets to each replica.

    Lesson 13 shows it; the day TensorFlow mends it, this says so.
    """
    other = make_strategy("mirrored", 3)
    options = tf.distribute.InputOptions(
        experimental_fetch_to_device=False,
        experimental_replication_mode=tf.distribute.InputReplicationMode.PER_REPLICA,
    )
    assert check_cover(distribute(tf, other, 12, 6), range(12)).once == 12
    asked = []
    other.distribute_datasets_from_function(
        lambda context: asked.append(context.num_input_pipelines) or tf.data.Dataset.range(4),
        options,
    )
    assert asked == [3, 3, 3]
    assert check_cover(distribute(tf, other, 12, 6), range(12)).doubled == tuple(range(12))


def test_shuffling_before_sharding_loses_and_doubles(tf):
    def view(late):
        numbers = tf.data.Dataset.range(64)
        return {
            f"worker {i}": [
                numbers.shuffle(64, seed=i).shard(2, i).as_numpy_iterator()
                if late
                else numbers.shard(2, i).shuffle(64, seed=i).as_numpy_iterator()
            ]
            for i in range(2)
        }

    def cover(late):
        steps = {who: [[int(n) for n in s] for s in v] for who, v in view(late).items()}
        return check_cover(steps, range(64))

    assert cover(late=True).lost and cover(late=True).doubled
    assert cover(late=False).once == 64


def test_the_picture_of_shares_says_what_it_shows():
    picture = shares({"a": [[0, 1], [2]], "b": [[2, 2]]}, 5, title="Shares")
    assert "a: 3 examples (0, 1, 2); b: 1 example (2)" in picture.alt
    assert "2 examples received by nobody and 1 example received more than once" in picture.alt
    assert picture.svg.count(">nobody<") == 1 and len(picture.png()) > 1000
    whole = shares({"a": [[0], [1]]}, 2, title="All")
    assert "Every example was received exactly once" in whole.alt and "nobody" not in whole.svg


def test_last_part_takes_the_ids_of_a_tuple():
    assert last_part(("image", "label", 7)) == 7 and last_part(7) == 7


# ---- two workers for real, and the service: one warm process for all


@pytest.fixture(scope="module")
def cluster(launcher):
    with LocalCluster(workers=2, launcher=launcher) as cluster:
        yield cluster


def receive(names, policy, batch, examples=None):
    """What this worker's replica receives, through experimental_distribute_dataset."""
    import tensorflow as tf

    from utils.input_pipeline.sharding import ids_per_replica, sharding_options

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    if names:
        lines = tf.data.Dataset.from_tensor_slices(names).flat_map(tf.data.TextLineDataset)
        ids = lines.map(lambda line: tf.strings.to_number(line, tf.int64))
    else:
        ids = tf.data.Dataset.range(examples)
    batches = ids.batch(batch).with_options(sharding_options(policy))
    return ids_per_replica(strategy, strategy.experimental_distribute_dataset(batches))


def by_worker(results):
    return {f"worker {i}": view["replica 0"] for i, view in enumerate(results)}


def test_two_real_workers_get_what_the_views_say(tf, cluster, tmp_path):
    names = make_files(tf, tmp_path)
    ids = read_ids(tf, names)
    for policy in ("FILE", "DATA", "OFF"):
        seen = by_worker(cluster.run(receive, names, policy, 8, timeout=300, echo=False))
        said = auto_shard(ids.batch(4), 2, policy)
        assert {who: all_ids(view) for who, view in seen.items()} == {
            who: all_ids(view) for who, view in said.items()
        }, policy
        assert all(len(step) <= 4 for view in seen.values() for step in view), "8 over 2 workers"


def test_uneven_ends_are_padded_with_nothing_on_real_workers(tf, cluster):
    results = cluster.run(receive, None, "DATA", 4, examples=10, timeout=300, echo=False)
    seen = by_worker(results)
    assert check_cover(seen, range(10)).once == 10
    lengths = {who: [len(step) for step in view] for who, view in seen.items()}
    assert len(lengths["worker 0"]) == len(lengths["worker 1"]), "both take as many steps"
    assert sum(map(sum, lengths.values())) == 10


@pytest.fixture(scope="module")
def single(launcher):
    with LocalCluster(workers=1, launcher=launcher) as cluster:
        yield cluster


def consume_and_hold(address, job_name, examples, batches, go):
    """Consume; after `batches` of them say "held", and go on once the file `go` is there."""
    from utils.input_pipeline import service

    send, seen = service.report, []

    def report(event, **fields):
        seen.append(event)
        if len(seen) == batches + 1:
            send("held")
            while not os.path.exists(go):
                time.sleep(0.01)
        send(event, **fields)

    service.report = report
    return service.consume(address, "DYNAMIC", job_name, examples)


def wait_until_held(job):
    assert next(event for event in job.events() if event["event"] == "held")


def test_the_service_shares_one_run_between_two_consumers(single, tmp_path):
    go = tmp_path / "go"
    with DataService(single, workers=2, seconds=600) as service:
        arguments = (consume_and_hold, service.address, "one", 320, 0, str(go))
        jobs = [single.start(*arguments) for _ in "ab"]
        for job in jobs:
            wait_until_held(job)
        go.touch()
        views = {f"consumer {i}": job.wait(300)[0] for i, job in enumerate(jobs)}
        assert check_cover(views, range(320)).once == 320
        assert all(views.values()), "both received something"
        processes = [task.process for job in service.jobs for task in job.tasks]
        assert len(processes) == 3 and len({os.getpgid(p) for p in processes}) == 3
    assert not any(alive(process) for process in processes)


def alive(process):
    return psutil.pid_exists(process) and psutil.Process(process).status() != "zombie"


def test_without_sharding_each_data_worker_gives_everything(tf, single):
    with DataService(single, workers=2, seconds=600) as service:
        off = tf.data.experimental.service.ShardingPolicy.OFF
        served = through_service(tf.data.Dataset.range(12).batch(4), service.address, off)
        view = {"me": [batch.tolist() for batch in served.as_numpy_iterator()]}
        assert check_cover(view, range(12)).doubled == tuple(range(12))


def test_a_killed_consumer_takes_what_it_had_and_a_killed_worker_comes_back_on_its_port(
    single, tmp_path
):
    with DataService(single, workers=2, seconds=600) as service:
        never = str(tmp_path / "never")
        doomed = single.start(consume_and_hold, service.address, "two", 400, 5, never)
        wait_until_held(doomed)
        other = single.start(consume, service.address, "DYNAMIC", "two", 400)
        doomed.kill("worker", 0)
        rest = other.wait(300)[0]
        told = [event["ids"] for event in doomed.events() if event["event"] == "batch"]
        views = {"doomed": told, "other": rest}
        cover = check_cover(views, range(400))
        assert cover.doubled == () and cover.lost and len(cover.lost) < 200, "at most once"

        reader = single.start(consume, service.address, "DYNAMIC", "three", 400, 0.02)
        next(iter(reader.events()))
        service.kill_worker(0)
        service.add_worker(service.ports[0])
        assert service.ports[2] == service.ports[0]
        received = {"reader": reader.wait(300)[0]}
        assert check_cover(received, range(400)).doubled == ()


def test_a_service_that_cannot_start_says_so(single):
    with pytest.raises(DistributedError, match="workers must be a whole number"):
        DataService(single, workers=0)

    def fail():
        raise ValueError("no room")

    with pytest.raises(DistributedError, match="dispatcher has ended .*no room"):
        wait_until_ready(single.start(fail), "dispatcher", seconds=120)


def test_nothing_is_left_of_a_service_whose_block_fails(single):
    processes = []
    with pytest.raises(ZeroDivisionError), DataService(single, 1, 600) as service:
        processes += [task.process for job in service.jobs for task in job.tasks]
        1 / 0  # noqa: B018
    assert len(processes) == 2 and not any(alive(process) for process in processes)
