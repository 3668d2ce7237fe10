"""`train` on a model, data, loss and optimizer of one's own: a regression on two inputs.

Every run is compared with plain gradient descent, written here by hand on one device.
"""

import functools
import json
import os

import numpy as np
import pytest
from test_checkpoints import Cut, cut_at

from utils.cluster import LocalCluster
from utils.errors import DistributedError
from utils.training import train

EXAMPLES, BATCH, EPOCHS = 70, 16, 2  # the last batch has 6
RATE = 0.0625  # exact in float32, as Keras holds it


def build_model():
    import keras

    inputs = {
        "left": keras.Input((3,), dtype="float64"),
        "right": keras.Input((2,), dtype="float64"),
    }
    start = keras.initializers.GlorotUniform
    hidden = keras.layers.Concatenate(dtype="float64")(list(inputs.values()))
    hidden = keras.layers.Dense(8, "tanh", dtype="float64", kernel_initializer=start(1))(hidden)
    return keras.Model(
        inputs, keras.layers.Dense(1, dtype="float64", kernel_initializer=start(2))(hidden)
    )


def make_arrays():
    values = np.random.default_rng(0).normal(size=(EXAMPLES, 5))
    return {"left": values[:, :3], "right": values[:, 3:]}, values @ np.arange(5.0)


def make_data():
    """Global batches, in one order."""
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices(make_arrays()).batch(BATCH)


def make_share(context, shuffled=False):
    """What one worker reads: every so many examples, in batches of one replica."""
    import tensorflow as tf

    examples = tf.data.Dataset.from_tensor_slices(make_arrays())
    if shuffled:
        examples = examples.shuffle(EXAMPLES, seed=3)
    share = examples.shard(context.num_input_pipelines, context.input_pipeline_id)
    return share.batch(context.get_per_replica_batch_size(BATCH))


def make_optimizer():
    import keras

    return keras.optimizers.SGD(RATE)


def squared_error(labels, outputs):
    return (labels - outputs[:, 0]) ** 2


OWN = {
    "model": build_model,
    "train_data": make_data,
    "test_data": make_data,
    "loss": "mse",
    "optimizer": make_optimizer,
    "dtype": "float64",
    "epochs": EPOCHS,
    "global_batch_size": BATCH,
}


@pytest.fixture(scope="module")
def by_hand(tf):
    """Return weights and mean losses of plain training, and the loss at its end."""
    model, (features, labels) = build_model(), make_arrays()
    variables, means = [v.value for v in model.trainable_variables], []

    def find_loss(chosen):
        outputs = model({name: value[chosen] for name, value in features.items()})[:, 0]
        return tf.reduce_mean((outputs - labels[chosen]) ** 2)

    for _ in range(EPOCHS):
        total = 0.0
        for start in range(0, EXAMPLES, BATCH):
            chosen = np.arange(start, min(start + BATCH, EXAMPLES))
            with tf.GradientTape() as tape:
                loss = find_loss(chosen)
            for variable, gradient in zip(variables, tape.gradient(loss, variables)):
                variable.assign_sub(RATE * gradient)
            total += float(loss) * len(chosen)
        means.append(total / EXAMPLES)
    return [v.numpy() for v in variables], means, float(find_loss(np.arange(EXAMPLES)))


def assert_same(report, by_hand, is_tested=True):
    weights, losses, end = by_hand
    for got, wanted in zip(report.weights, weights, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-9)
    np.testing.assert_allclose(report.loss, losses, rtol=1e-5)
    assert report.test_loss == (pytest.approx(end, rel=1e-5) if is_tested else None)
    assert report.accuracy is None and report.test_accuracy is None
    assert (report.examples, report.dataset) == (EXAMPLES, "own data")


def give_loss_object():
    import keras

    return keras.losses.MeanSquaredError(dtype="float64")


def make_filtered():
    data = make_data().filter(lambda features, labels: True)
    assert int(data.cardinality()) < 0
    return data


@pytest.mark.parametrize(
    "strategy, replicas, loop, change",
    [
        ("default", 1, "custom", {}),
        ("one-device", 1, "fit", {"train_data": make_filtered}),  # counted: nobody knows its length
        ("mirrored", 3, "custom", {"train_data": "dataset", "optimizer": "object"}),
        ("mirrored", 3, "fit", {"loss": squared_error}),
        ("central-storage", 2, "custom", {"optimizer": "sgd", "learning_rate": RATE}),
        # one pipeline here, cut as it comes; workers have one each, and both loops
        ("mirrored", 2, "custom", {"train_data": make_share, "loss": give_loss_object}),
    ],
)
def test_own_model_and_data_train_as_by_hand(by_hand, strategy, replicas, loop, change):
    """Each setting is a name, an object or a function in one of the rows."""
    if change.get("optimizer") == "object":
        change = {name: make_data() for name in ("train_data", "test_data")}
        change["optimizer"] = make_optimizer()
    settings = {**OWN, **change}
    assert_same(train(strategy=strategy, replicas=replicas, loop=loop, **settings), by_hand)


def test_the_report_leaves_out_what_there_is_not():
    report = train(**{**OWN, "test_data": None, "epochs": 1})
    assert "accuracy" not in str(report) and "test" not in str(report)
    assert not {"accuracy", "test_loss", "test_accuracy"} & set(json.loads(report.to_json()))


def test_weights_of_examples_count(tf):
    """An example of weight 0 is as good as not there; weight 2 counts twice."""
    features, labels = make_arrays()
    weights = np.array([2.0] * 35 + [0.0] * 35)
    data = tf.data.Dataset.from_tensor_slices((features, labels, weights)).batch(EXAMPLES)
    settings = {**OWN, "test_data": None, "global_batch_size": EXAMPLES, "epochs": 1}
    weighted = train(strategy="mirrored", replicas=2, **{**settings, "train_data": data})
    first = {name: value[:35] for name, value in features.items()}
    half = tf.data.Dataset.from_tensor_slices((first, labels[:35])).batch(35)
    settings |= {"global_batch_size": 35, "train_data": half, "optimizer": "sgd"}
    plain = train(**{**settings, "learning_rate": 2 * RATE})
    assert weighted.examples == 35
    for got, wanted in zip(weighted.weights, plain.weights):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-9)


def test_labels_that_are_classes_have_an_accuracy_and_many_a_number(tf):
    """Per-pixel classes: the loss of an example is the mean over its pixels, as in test_scenes."""
    import keras

    images = np.random.default_rng(1).normal(size=(24, 4, 4, 1)).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((images, (images[..., 0] > 0).astype("int64")))

    def build():
        start = keras.initializers.GlorotUniform(3)
        return keras.Sequential(
            [keras.Input((4, 4, 1)), keras.layers.Conv2D(2, 1, kernel_initializer=start)]
        )

    settings = {
        "model": build,
        "train_data": data.repeat(15).batch(8),
        "test_data": data.batch(8),
        "global_batch_size": 8,
        "epochs": 2,
        "optimizer": "adam",
        "learning_rate": 0.1,
    }
    report = train(strategy="mirrored", replicas=2, **settings)
    assert report.test_accuracy > 0.95 and len(report.accuracy) == 2


# ---- lengths, resuming, export


def make_shuffled():
    return make_data().unbatch().shuffle(EXAMPLES, seed=3).batch(BATCH)


def make_endless():
    return make_data().repeat()


@pytest.mark.parametrize(
    "replicas, loop, change",
    [
        (2, "fit", {"train_data": make_shuffled}),
        (2, "custom", {"train_data": functools.partial(make_share, shuffled=True)}),
        (1, "custom", {"train_data": make_endless, "steps_per_epoch": 3}),
    ],
    ids=["shuffled", "shuffled-share", "endless"],
)
def test_a_resumed_run_has_the_weights_of_the_uninterrupted_one(
    tf, tmp_path, replicas, loop, change
):
    """`fit` makes an iterator for each device, and all count as one pass over the data."""
    own = {"strategy": "mirrored", "replicas": replicas, "loop": loop}
    settings = {**OWN, **change, **own, "optimizer": "adam", "epochs": 3, "test_data": None}
    whole = train(**settings)
    saved = {"checkpoint_dir": tmp_path, "checkpoint_every": 4}
    with pytest.raises(Cut):
        train(on_event=cut_at(9), **settings, **saved)
    resumed = train(**settings, **saved)
    assert resumed.weights_checksum == whole.weights_checksum
    np.testing.assert_allclose(resumed.loss, whole.loss, rtol=1e-6)
    assert resumed.resumed_from == str(tmp_path / "train-8")


def test_steps_per_epoch_read_on_where_the_last_epoch_ended(by_hand):
    """5 batches in all, read twice over; the third epoch crosses their end."""
    settings = {**OWN, "epochs": 5, "steps_per_epoch": 2, "test_data": None}
    report = train(loop="fit", **settings)
    for got, wanted in zip(report.weights, by_hand[0], strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-9)


def test_export_and_a_model_that_is_built_when_it_is_called(tf, tmp_path):
    import keras

    def build():
        start = keras.initializers.GlorotUniform(1)
        return keras.Sequential([keras.layers.Dense(1, kernel_initializer=start)])

    features, labels = make_arrays()
    data = tf.data.Dataset.from_tensor_slices((features["left"].astype("float32"), labels))
    report = train(
        model=build,
        train_data=data.batch(BATCH),
        loss="mse",
        strategy="mirrored",
        replicas=2,
        global_batch_size=BATCH,
        export=tmp_path,
        epochs=1,
    )
    model = keras.models.load_model(tmp_path / "model.keras")
    for got, wanted in zip(model.trainable_variables, report.weights, strict=True):
        np.testing.assert_array_equal(got.numpy(), wanted)
    served = tf.saved_model.load(str(tmp_path / "saved_model"))
    some = features["left"][:4].astype("float32")
    np.testing.assert_allclose(served.serve(some), model(some), atol=1e-6)


# ---- what can't be


def test_a_larger_batch_later_on_is_one_clear_sentence(tf):
    def make_growing():
        return make_data().take(2).concatenate(make_data().unbatch().batch(32))

    with pytest.raises(DistributedError, match="a batch has more than 16 examples"):
        train(**{**OWN, "train_data": make_growing, "test_data": None})


# ---- in a cluster: functions travel to the processes


def train_there(ways):
    """In a worker or coordinator: train one way after the other; return reports and refusals."""
    from utils.errors import RunError
    from utils.training import train

    ends = []
    for way in ways:
        try:
            ends.append(train(**{**OWN, **way}))
        except RunError as error:
            ends.append(str(error))
    return ends


def make_different():
    """Another order on the second worker: what an unseeded shuffle does."""
    number = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    return make_data().unbatch().shuffle(EXAMPLES, seed=number).batch(BATCH)


def test_workers_train_own_data_as_by_hand_and_are_told_if_it_differs(launcher, by_hand):
    """A share is 8 examples of each worker in a step; in the last 3, all of one replica."""
    share = {"train_data": make_share, "test_data": None}
    ways = [{"train_data": make_different}, {"loop": "fit"}]
    ways += [{**share, "loop": loop} for loop in ("fit", "custom")]
    ways = [{"strategy": "multi-worker", **way} for way in ways]
    with LocalCluster(2, 0, 2, launcher=launcher) as cluster:
        for refusal, *reports in cluster.run(train_there, ways, timeout=300, echo=False):
            assert "weren't started alike: first batch of train data is" in refusal
            for report, is_tested in zip(reports, (True, False, False), strict=True):
                assert_same(report, by_hand, is_tested)
                assert (report.workers, report.replicas) == (2, 2)


def test_own_data_on_parameter_servers(launcher, by_hand, tmp_path):
    """With one worker there is nobody to be stale against; then it goes on from its checkpoint."""
    settings = {"strategy": "parameter-server", "checkpoint_dir": str(tmp_path / "c")}
    ways = [{**settings, "epochs": 1}, {**settings, "export": str(tmp_path / "e")}]
    with LocalCluster(1, 1, launcher=launcher) as cluster:
        _, report = cluster.run(train_there, ways, timeout=200, echo=False)
    assert_same(report, by_hand)
    assert report.resumed_from == str(tmp_path / "c" / "train-5")
    assert "model.keras" in os.listdir(tmp_path / "e")


def test_a_loss_without_a_module_is_the_users_own(tf):
    from utils.training.state import find_loss

    def own(labels, outputs):
        return labels - outputs

    own.__module__ = None
    assert find_loss(own, "float32") == (own, "")
    assert find_loss(tf.keras.losses.get("mse"), "float32")[1] == "mean_squared_error"
