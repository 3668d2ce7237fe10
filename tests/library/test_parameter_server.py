"""Parameter servers: the simulator against closed forms, then real processes.

Everything below `cluster` runs on one warm process. Functions that begin with `on_`
run in the coordinator, the others here. Speed is never asserted: which worker does what in
which order is held by gates in the graph (`wait_in_graph`).
"""

import statistics
import threading
from functools import partial

import numpy as np
import pytest
from process_watch import wait_for

from distlab.lessons.update_records import (
    Update,
    count_by_worker,
    make_spans,
    mean_staleness,
    mean_staleness_by_worker,
)
from utils.cluster import ClusterError, LocalCluster, local_tasks
from utils.data import load
from utils.errors import DistributedError
from utils.simulate.parameter_server import MODES, Cluster, simulate_parameter_server

STEPS = 2000
SECONDS = 300  # until a hang ends


# ---- the simulator


def count_gradients(run):
    """Return how many gradients went into updates in each second of `run`."""
    return sum(run.gradients) / run.seconds


def test_without_jitter_rates_are_the_closed_forms():
    for times in ([1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 5.0], [0.3, 0.7, 2.0]):
        cluster = Cluster(times)
        synchronous = simulate_parameter_server("synchronous", cluster, STEPS)
        assert synchronous.updates_per_second == pytest.approx(1 / max(times))
        assert count_gradients(synchronous) == pytest.approx(len(times) / max(times))
        free = simulate_parameter_server("asynchronous", cluster, STEPS)
        assert count_gradients(free) == pytest.approx(sum(1 / t for t in times), rel=0.01)
        shares = np.array(free.gradients) / STEPS
        speeds = 1 / np.array(times)
        np.testing.assert_allclose(shares, speeds / speeds.sum(), atol=0.01)
    backup = simulate_parameter_server("backup", Cluster([1.0, 1.0, 1.0, 5.0]), 100, backup=1)
    assert backup.updates_per_second == pytest.approx(1.0)
    assert backup.gradients == [100, 100, 100, 0] and len(backup.late) == 19


def test_a_busy_server_is_the_limit():
    slow = Cluster([1.0] * 8, server_seconds=0.5)
    run = simulate_parameter_server("asynchronous", slow, STEPS)
    assert run.updates_per_second == pytest.approx(2.0, rel=0.01)
    rounds = simulate_parameter_server("synchronous", slow, 50)
    assert rounds.updates_per_second == pytest.approx(1 / (1.0 + 8 * 0.5))


def test_exponential_steps_make_a_round_as_long_as_the_harmonic_number():
    run = simulate_parameter_server("synchronous", Cluster([1.0] * 4, jitter=1.0), 20_000, seed=1)
    assert 1 / run.updates_per_second == pytest.approx(1 + 1 / 2 + 1 / 3 + 1 / 4, rel=0.03)


@pytest.mark.parametrize("jitter", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("times", [[1.0], [1.0] * 4, [1.0] * 16, [1.0, 1.0, 1.0, 5.0]])
def test_mean_staleness_comes_to_workers_less_one(times, jitter):
    run = simulate_parameter_server("asynchronous", Cluster(times, jitter=jitter), STEPS)
    most = len(times) - 1
    assert most * 0.95 <= run.mean_staleness <= most
    if len(times) == 1:
        assert set(run.staleness) == {0}


def test_a_slow_worker_concentrates_staleness_on_itself():
    even = simulate_parameter_server("asynchronous", Cluster([1.0] * 4), STEPS)
    slow = simulate_parameter_server("asynchronous", Cluster([1.0, 1.0, 1.0, 5.0]), STEPS)
    assert max(even.staleness) == 3 and max(slow.staleness) >= 15
    assert statistics.median(slow.staleness) < statistics.median(even.staleness)


@pytest.mark.parametrize("bound", [0, 1, 3])
def test_bounded_staleness_lies_between_the_two(bound):
    cluster = Cluster([1.0, 1.2, 2.0], jitter=0.5)
    run = simulate_parameter_server("bounded", cluster, STEPS, bound=bound)
    assert max(run.staleness) <= (cluster.workers - 1) * (2 * bound + 1)
    assert max(run.gradients) - min(run.gradients) <= bound + 1
    free = simulate_parameter_server("asynchronous", cluster, STEPS)
    rounds = simulate_parameter_server("synchronous", cluster, STEPS)
    assert count_gradients(rounds) * 0.97 <= count_gradients(run) <= count_gradients(free)


def test_no_worker_does_two_steps_at_once():
    for mode in MODES:
        settings = {"backup": 1} if mode == "backup" else {}
        run = simulate_parameter_server(mode, Cluster([1.0, 2.0, 3.0], jitter=0.5), 50, **settings)
        for worker in range(3):
            spans = sorted(s[1:3] for s in run.spans if s[0] == f"worker {worker}")
            assert all(a[1] <= b[0] + 1e-12 for a, b in zip(spans, spans[1:]))
        assert sum(run.gradients) + len(run.late) == len(run.spans)


# ---- records


def test_records_add_up():
    first = Update(worker=1, version=0, ticket=0, written=True, loss=1.0, began=5.0, ended=6.0)
    second = Update(worker=0, version=0, ticket=1, written=True, loss=1.0, began=5.5, ended=7.0)
    third = Update(worker=0, version=2, ticket=2, written=True, loss=1.0, began=7.0, ended=7.5)
    updates = [first, second, third]
    assert mean_staleness(updates) == pytest.approx(1 / 3)
    assert mean_staleness_by_worker(updates) == {0: 0.5, 1: 0.0}
    assert make_spans(updates) == [
        ("worker 0", 0.5, 2.0, "1", "update"),
        ("worker 0", 2.0, 2.5, "0", "update"),
        ("worker 1", 0.0, 1.0, "0", "update"),
    ]
    assert count_by_worker(updates) == {0: 2, 1: 1}
    with pytest.raises(DistributedError, match="no updates"):
        mean_staleness([])


# ---- real processes


@pytest.fixture(scope="module")
def cluster(launcher):
    return LocalCluster(workers=2, ps=2, launcher=launcher)


@pytest.fixture(scope="module")
def sample():
    """The first 1,000 training examples: images [1000, 28, 28, 1] float32 in [0, 1], labels."""
    train = load("fashion_mnist").train
    return train.images[:1000, ..., None] / np.float32(255), train.labels[:1000]


def cross_entropy(labels, logits):
    import tensorflow as tf

    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)  # [batch]


def make_batches(images, labels, size=32):
    import tensorflow as tf

    from utils.training.parameter_server.coordination import find_worker

    data = tf.data.Dataset.from_tensor_slices((images, labels))
    return data.shuffle(len(labels), seed=find_worker()).repeat().batch(size)


def make_loop(coordination, sample, build, rate=0.05, make=None, **settings):
    import keras

    from distlab.lessons.stale_updates import StalenessLoop

    with coordination.strategy.scope():
        model, optimizer = build(), keras.optimizers.SGD(rate)
    return (make or StalenessLoop)(
        coordination, model, optimizer, cross_entropy, lambda: make_batches(*sample), **settings
    )


def on_embedding(sample, folder):
    """Train the embedding model cut in two; save; count bytes."""
    from distlab.lessons.loopback_traffic import measure_traffic
    from utils.models import build_embedding_model
    from utils.training.parameter_server.checkpoints import train_with_checkpoints
    from utils.training.parameter_server.coordination import connect
    from utils.training.parameter_server.variables import describe_pieces, read_weights

    coordination = connect()
    loop = make_loop(coordination, sample, build_embedding_model, rate=0.1)
    pieces = describe_pieces(loop.model.variables)
    loop.run(4)
    sent = measure_traffic(lambda: loop.run(10), 10)
    updates, begun = train_with_checkpoints(loop, folder, steps=40, every=20)
    return pieces, sent, updates, begun, read_weights(loop.model.variables)


@pytest.fixture(scope="module")
def embedding(cluster, sample, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("checkpoints"))
    return folder, *cluster.run(on_embedding, sample, folder, timeout=SECONDS)


def test_variables_are_cut_and_shown_where_they_live(embedding):
    pieces = embedding[1]
    table = [p for p in pieces if p.variable.endswith("embedding/table")]
    assert sorted(p.server for p in table) == [0, 1]
    assert [p.rows for p in table] == [49 * 8**4 // 2] * 2
    assert sum(p.payload_bytes for p in table) == 49 * 8**4 * 16 * 4
    assert [p.rows for p in pieces if p not in table] == [16, 10]


def test_a_step_moves_the_rows_it_touches_and_not_the_table(embedding):
    pieces, sent = embedding[1:3]
    table = sum(p.payload_bytes for p in pieces)
    touched = 32 * 49 * 16 * 4  # read once, and written back once
    assert 1.5 * touched < sent < table / 4


def test_a_plain_model_reads_what_was_saved_of_cut_variables(tf, embedding, sample):
    from utils.models import build_embedding_model
    from utils.training.parameter_server.variables import list_weights

    folder, _, _, updates, begun, weights = embedding
    assert begun == 0 and len(updates) == 40
    plain, (images, labels) = build_embedding_model(), sample
    saved = tf.train.Checkpoint(weights=list_weights(plain)).restore(f"{folder}/train-40")
    saved.expect_partial().assert_existing_objects_matched()
    for ours, theirs in zip(plain.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert [w.shape for w in weights] == [(49 * 8**4, 16), (16, 10), (10,)]
    assert (np.argmax(plain(images), axis=-1) == labels).mean() > 0.5


def wait_in_graph(count, goal):
    """In a closure: wait until the variable `count` has come to `goal`; return 0, to depend on."""
    import tensorflow as tf

    from distlab.lessons.slow_workers import sleep_in_graph

    def look_later(_):
        return [sleep_in_graph(tf.constant(0.005))]

    zero = tf.constant(0, tf.int64)
    return tf.while_loop(lambda _: count.read_value() < goal, look_later, [zero])[0]


def make_paired_loop(*parts, **settings):
    """Return a loop whose two workers take turns, whatever their speeds.

    A closure looks once the one before has its ticket, and writes once the next one has read the
    parameters. So each but the first misses one update, which has its ticket and isn't written.
    """
    import tensorflow as tf

    from distlab.lessons.stale_updates import StalenessLoop, Tickets

    class PairedLoop(StalenessLoop):
        def run(self, steps, max_in_flight=None):
            self.end.assign(0 if max_in_flight == 1 else self.begun.variable + steps)
            return super().run(steps, max_in_flight)

        def take_step(self, batch):
            self.place = self.begun.draw()
            with tf.control_dependencies([wait_in_graph(self.tickets.variable, self.place)]):
                batch = tf.nest.map_structure(tf.identity, batch)
            return super().take_step(batch)

        def compute(self, batch):
            loss, gradients = super().compute(batch)
            with tf.control_dependencies([loss, *(tf.identity(one) for one in gradients)]):
                with tf.control_dependencies([self.begun.finish()]):
                    return tf.identity(loss), gradients

        def write(self, gradients):
            goal = tf.minimum(self.place + 2, self.end.read_value())
            with tf.control_dependencies([wait_in_graph(self.begun.finished, goal)]):
                return super().write([tf.identity(gradient) for gradient in gradients])

    loop = PairedLoop(*parts, **settings)
    loop.begun = Tickets(loop.coordination.strategy)
    with loop.coordination.strategy.scope():
        loop.end = tf.Variable(0, dtype=tf.int64)
    return loop


def make_uneven_loop(*parts, **settings):
    """Return a loop in which worker 1 lets five updates pass before it draws a ticket.

    Worker 0 begins when worker 1 has looked, which it does at once; 20 steps are taken.
    """
    import tensorflow as tf

    from distlab.lessons.stale_updates import StalenessLoop, Tickets
    from utils.training.parameter_server.coordination import find_worker

    class UnevenLoop(StalenessLoop):
        def compute(self, batch):
            loss, gradients = super().compute(batch)
            with tf.control_dependencies([loss]):
                waited = tf.cond(find_worker() == 1, self.let_pass, self.wait_for_the_other)
            with tf.control_dependencies([waited]):
                return tf.identity(loss), gradients

        def let_pass(self):
            with tf.control_dependencies([self.slow.finish()]):
                goal = tf.minimum(self.tickets.variable.read_value() + 5, 19)
            return wait_in_graph(self.tickets.variable, goal)

        def wait_for_the_other(self):
            return wait_in_graph(self.slow.finished, tf.constant(1, tf.int64))

    loop = UnevenLoop(*parts, **settings)
    loop.slow = Tickets(loop.coordination.strategy)
    return loop


def on_staleness(sample):
    from utils.models import build_mlp
    from utils.training.parameter_server.coordination import connect

    coordination = connect()
    even = make_loop(coordination, sample, build_mlp, make=make_paired_loop, max_staleness=1)
    found = {"one after the other": even.run(4, max_in_flight=1), "even": even.run(12)}
    bound = make_loop(coordination, sample, build_mlp, make=make_uneven_loop, max_staleness=1)
    found["bound"] = bound.run(20)
    iterations = int(bound.optimizer.iterations.numpy())
    return found, even.written.read(), bound.written.read(), iterations


@pytest.fixture(scope="module")
def staleness(cluster, sample):
    return cluster.run(on_staleness, sample, timeout=SECONDS)


def test_one_closure_at_a_time_is_never_stale(staleness):
    updates = staleness[0]["one after the other"]
    assert [u.staleness for u in updates] == [0] * 4
    assert [u.ticket for u in updates] == list(range(4))


def test_an_update_that_is_not_written_yet_counts_as_missed(staleness):
    """Each but the first looks after the one before drew its ticket, and before that wrote."""
    updates, written = staleness[0]["even"], staleness[1]
    assert [u.ticket for u in updates] == list(range(4, 16)) and written == 16
    assert [u.staleness for u in updates] == [0] + [1] * 11
    assert count_by_worker(updates) == {0: 6, 1: 6}


def test_a_slow_worker_gives_fewer_and_staler_updates(staleness):
    """Whether they are written or not."""
    slow = staleness[0]["bound"]
    counts = count_by_worker(slow)
    assert counts[1] < counts[0]
    stale = {w: [u.staleness for u in slow if u.worker == w] for w in counts}
    assert max(stale[1]) >= 5 and statistics.mean(stale[1]) > statistics.mean(stale[0])
    for update in slow:  # none counts an update that was finished when it began
        earlier = [u for u in slow if u.worker != update.worker and u.ticket < update.ticket]
        assert 0 <= update.staleness <= len([u for u in earlier if u.ended >= update.began])


def test_bounded_staleness_writes_nothing_beyond_its_bound(staleness):
    found, _, written, iterations = staleness
    assert all(u.written for u in found["even"]), "at the bound"
    assert all(u.written == (u.staleness <= 1) for u in found["bound"])
    assert any(not u.written for u in found["bound"])
    assert written == iterations == sum(u.written for u in found["bound"])


def on_exactness(images, labels):
    """Float64 SGD, one closure at a time: the weights of a plain loop over the same batches."""
    import keras
    import tensorflow as tf

    from utils.models import build_mlp
    from utils.training.parameter_server.coordination import connect
    from utils.training.parameter_server.loop import AsynchronousLoop
    from utils.training.parameter_server.variables import read_weights

    coordination = connect(min_shard_bytes=1 << 10)
    with coordination.strategy.scope():
        model, optimizer = build_mlp(dtype="float64"), keras.optimizers.SGD(0.05)
    loop = AsynchronousLoop(
        coordination,
        model,
        optimizer,
        cross_entropy,
        lambda: tf.data.Dataset.from_tensors((images[:64].astype("float64"), labels[:64])).repeat(),
    )
    loop.run(8, max_in_flight=1)
    pieces = len(loop.pieces)

    plain, sgd = build_mlp(dtype="float64"), keras.optimizers.SGD(0.05)
    for _ in range(8):
        with tf.GradientTape() as tape:
            logits = plain(images[:64].astype("float64"), training=True)
            loss = tf.reduce_mean(cross_entropy(labels[:64], logits))
        gradients = tape.gradient(loss, plain.trainable_variables)
        sgd.apply_gradients(zip(gradients, plain.trainable_variables))
    return pieces, read_weights(model.variables), plain.get_weights()


def test_without_staleness_the_weights_are_those_of_one_process(cluster, sample):
    pieces, ours, theirs = cluster.run(on_exactness, *sample, timeout=SECONDS)
    assert pieces > len(theirs)
    for mine, plain in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, plain, rtol=0, atol=1e-12)


def on_counts():
    """A step on each of two workers; return Keras's counter, then the exact one.

    Neither writes the counter's new value before both have read the old one.
    """
    import keras
    import tensorflow as tf

    from distlab.lessons.stale_updates import Tickets
    from utils.training.parameter_server.coordination import connect
    from utils.training.parameter_server.counting import use_atomic_step_counter

    coordination = connect()

    def count(exact):
        begun = Tickets(coordination.strategy)
        with coordination.strategy.scope():
            model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
            optimizer = keras.optimizers.Adam()
            optimizer.build(model.trainable_variables)
        iterations = optimizer.iterations
        if exact:
            use_atomic_step_counter(optimizer)

        def assign_late(value):
            value = tf.convert_to_tensor(value)
            with tf.control_dependencies([value]), tf.control_dependencies([begun.finish()]):
                waited = wait_in_graph(begun.finished, 2)
            with tf.control_dependencies([waited]):
                return keras.Variable.assign(iterations, tf.identity(value))

        iterations.assign = assign_late

        def step():
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(model(tf.ones([8, 4])))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))

        closure = tf.function(lambda: coordination.strategy.run(step))
        for _ in range(2):
            coordination.coordinator.schedule(closure)
        coordination.coordinator.join()
        return int(optimizer.iterations.numpy())

    return count(exact=False), count(exact=True)


def test_keras_loses_steps_and_the_exact_counter_none(cluster):
    assert cluster.run(on_counts, timeout=SECONDS) == (1, 2)


def test_a_lost_step_makes_adams_correction_an_earlier_one():
    from utils.training.parameter_server.counting import adam_correction

    assert adam_correction(1) == pytest.approx(0.001**0.5 / 0.1)
    assert adam_correction(10**6) == pytest.approx(1.0)
    assert adam_correction(109) != pytest.approx(adam_correction(150), rel=0.01)


def on_sharded_keras():
    """What Keras 3 says to a variable that was cut."""
    import keras
    import tensorflow as tf

    from utils.training.parameter_server.coordination import connect

    coordination = connect(min_shard_bytes=1 << 10)
    with coordination.strategy.scope():
        model = keras.Sequential([keras.Input((100,)), keras.layers.Dense(64)])

    def compute():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(tf.ones([2, 100])))
        return tape.gradient(loss, model.trainable_variables)

    said = []
    for attempt in (compute, lambda: tf.train.Checkpoint(model=model).save("never-written")):
        try:
            attempt()
        except AttributeError as error:
            said.append(str(error).strip().splitlines()[-1])
    return said


def test_keras_cannot_differentiate_or_save_a_variable_that_was_cut(cluster):
    said = cluster.run(on_sharded_keras, timeout=SECONDS)
    assert len(said) == 2
    for words, name in zip(said, ("handle", "device")):
        assert f"'ShardedVariable' object has no attribute '{name}'" in words


def on_learning_rates(features, targets, runs):
    """Full-batch least squares with each (rate, max_in_flight, scaling) of `runs`; its losses."""
    import keras
    import tensorflow as tf

    from utils.training.parameter_server.coordination import connect

    def squares(y, outputs):
        return tf.reduce_sum((outputs - y) ** 2, axis=-1) / 2

    def make(scaling):
        layer = keras.layers.Dense(10, use_bias=False, kernel_initializer="zeros")
        with coordination.strategy.scope():
            model = keras.Sequential([keras.Input((features.shape[1],)), layer])
            optimizer = keras.optimizers.SGD(0.0)
        return make_paired_loop(
            coordination,
            model,
            optimizer,
            squares,
            lambda: tf.data.Dataset.from_tensors((features, targets)).repeat(),
            staleness_scaling=scaling,
        )

    def descend(rate, max_in_flight, scaling):
        loop = loops[scaling]
        loop.optimizer.learning_rate.assign(rate)
        for piece in loop.pieces:
            piece.assign(tf.zeros_like(piece))
        return [update.loss for update in loop.run(20, max_in_flight)]

    coordination = connect()
    loops = {scaling: make(scaling) for scaling in (False, True)}
    return {name: descend(*run) for name, run in runs.items()}


def test_a_rate_that_is_stable_alone_diverges_with_staleness_one(cluster, sample):
    """Delayed descent on curvature k is stable below 2/k without, 1/k with a delay of one."""
    features = sample[0][:128].reshape(128, -1)
    targets = np.eye(10, dtype="float32")[sample[1][:128]]
    curvature = float(np.linalg.norm(features, 2) ** 2 / 128)
    runs = {
        "alone": (1.5 / curvature, 1, False),
        "stale": (1.5 / curvature, None, False),
        "stale, slower": (0.5 / curvature, None, False),
        "stale, damped": (1.5 / curvature, None, True),
    }
    losses = cluster.run(on_learning_rates, features, targets, runs, timeout=SECONDS)
    assert losses["stale"][-1] > 10 * losses["stale"][0]
    for name in ("alone", "stale, slower", "stale, damped"):
        assert losses[name][-1] < losses[name][0]


def on_long_run(sample, folder, steps, is_held=False):
    """Adam, a checkpoint every 10 steps; goes on from the last. Held, it has none.

    Returns what is said of another model with the same folder, too.
    """
    import keras

    from distlab.lessons.stale_updates import StalenessLoop
    from utils.models import build_mlp
    from utils.training.parameter_server.checkpoints import train_with_checkpoints
    from utils.training.parameter_server.coordination import connect

    coordination = connect()

    def make(make_loop, hidden_units=128):
        with coordination.strategy.scope():
            model, optimizer = build_mlp(hidden_units=hidden_units), keras.optimizers.Adam()
        parts = (coordination, model, optimizer, cross_entropy, lambda: make_batches(*sample))
        return make_loop(*parts)

    if is_held:
        loop, begun, said = make(partial(make_held_loop, folder)), 0, None
        updates = loop.run(steps)
    else:
        loop = make(StalenessLoop)
        updates, begun = train_with_checkpoints(loop, folder, steps, every=10)
        with pytest.raises(DistributedError) as refused:
            train_with_checkpoints(make(StalenessLoop, 64), folder, steps + 10, every=10)
        said = str(refused.value)
    return begun, updates, loop.written.read(), int(loop.optimizer.iterations.numpy()), said


def make_held_loop(folder, *parts):
    """Return a loop in which worker 1 says that it has a gradient, and stays until `go` is there.

    Worker 0 begins then. Both look at files of `folder`.
    """
    import tensorflow as tf

    from distlab.lessons.slow_workers import sleep_in_graph
    from distlab.lessons.stale_updates import StalenessLoop
    from utils.training.parameter_server.coordination import find_worker

    def wait_for_file(name):
        def is_missing(zero):  # a pattern that is a constant would be looked for only once
            return tf.size(tf.io.matching_files(tf.gather([f"{folder}/{name}"], zero))) == 0

        def look_later(_):
            return [sleep_in_graph(tf.constant(0.005))]

        return tf.while_loop(is_missing, look_later, [tf.constant(0, tf.int64)])[0]

    class HeldLoop(StalenessLoop):
        def compute(self, batch):
            loss, gradients = super().compute(batch)
            with tf.control_dependencies([loss]):
                waited = tf.cond(
                    find_worker() == 1, self.say_and_stay, lambda: wait_for_file("held")
                )
            with tf.control_dependencies([waited]):
                return tf.identity(loss), gradients

        def say_and_stay(self):
            with tf.control_dependencies([tf.io.write_file(f"{folder}/held", "")]):
                return wait_for_file("go")

    return HeldLoop(*parts)


def test_no_closure_is_lost_with_a_killed_worker(cluster, sample, tmp_path):
    job = cluster.start(on_long_run, sample, str(tmp_path), 20, is_held=True)
    wait_for((tmp_path / "held").exists)
    job.kill("worker", 1)
    victim = next(task for task in job.tasks if task.name == "worker 1")
    wait_for(lambda: victim.status is not None)
    job.restart("worker", 1)
    (tmp_path / "go").touch()
    _, updates, written, iterations, _ = job.wait(SECONDS)
    assert len(updates) == 20 and len({u.ticket for u in updates}) == 20
    assert written >= 20 and iterations >= 20, "at least once"
    assert abs(iterations - written) <= 1, "a killed closure has half written, another whole"
    assert {u.worker for u in updates} <= {0, 1}


def test_a_killed_parameter_server_ends_the_run_and_the_checkpoint_resumes_it(
    cluster, sample, tmp_path, monkeypatch
):
    """Its coordinator says that it has lost a server, long before the server's end is heard of."""
    take_end = local_tasks._Running._take_end

    def take_late(*told):
        threading.Timer(2.0, take_end, told).start()

    monkeypatch.setattr(local_tasks._Running, "_take_end", take_late)
    job = cluster.start(on_long_run, sample, str(tmp_path), 100_000)
    steps = [event["step"] for _, event in zip(range(2), job.events())]
    assert steps == [10, 20]
    job.kill("ps", 1)
    with pytest.raises(ClusterError, match="ps 1: was ended by SIGKILL") as failed:
        job.wait(SECONDS)
    monkeypatch.undo()
    assert failed.value.task == "ps 1" and "checkpoint" in failed.value.cure
    saved = max(int(p.stem.partition("-")[2]) for p in tmp_path.glob("train-*.index"))
    done = cluster.run(on_long_run, sample, str(tmp_path), saved + 10, timeout=SECONDS)
    begun, updates, written, iterations, said = done
    assert begun == saved and len(updates) == 10
    assert written == iterations == saved + 10
    assert "doesn't fit this run: its weights differ" in said


def test_a_wrong_place_or_number_is_said(monkeypatch):
    from distlab.lessons.slow_workers import check_delays
    from utils.training.parameter_server.coordination import connect, make_partitioner

    with pytest.raises(DistributedError, match="TF_CONFIG must have parameter servers"):
        connect()
    task = '{"cluster": {"worker": ["h:1"], "ps": ["h:2"]}, "task": {"type": "ps", "index": 0}}'
    for text, words in ((task, "got a ps task"), ("{", "one JSON object")):
        monkeypatch.setenv("TF_CONFIG", text)
        with pytest.raises(DistributedError, match=words):
            connect()
    with pytest.raises(DistributedError, match="must be 2 numbers of seconds"):
        check_delays((0.1,), 2)
    with pytest.raises(DistributedError, match="min_shard_bytes must be at least 0 .*got -1"):
        make_partitioner(2, -1)


def test_the_embedding_model_counts_its_tokens():
    from utils.models import PatchTokens, build_embedding_model

    images = load("fashion_mnist").test.images[:4, ..., None] / np.float32(255)
    tokens = PatchTokens(levels=8)(images).numpy()
    assert tokens.shape == (4, 49)
    patch = images[2, 4:8, 8:12, 0]  # in row 1, column 2: the tenth of 49
    quarters = patch.reshape(2, 2, 2, 2).mean(axis=(1, 3))
    steps = np.clip(np.floor(quarters * 8), 0, 7).astype(int).ravel()
    assert tokens[2, 9] == 9 * 8**4 + sum(int(s) * 8**k for k, s in enumerate(steps))
    model = build_embedding_model(levels=4, units=3)
    assert model.count_params() == 49 * 4**4 * 3 + 3 * 10 + 10
    assert model(images).shape == (4, 10)
