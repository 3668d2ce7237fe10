"""Lab 04, custom training loop: its parts are run on real replicas."""

import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from distlab.class_seed import ClassNumber
from distlab.exercises.comparing import Digest, add_up, as_numbers, same, show
from distlab.exercises.exercise import Exercise, contrast, each
from distlab.exercises.folder import Folder, pack_folder
from distlab.exercises.model_maker import ModelCutOff, ModelMaker, cutting_off
from distlab.exercises.refusing import read_array, read_number, require_parts
from distlab.labs import ANSWERS
from distlab.labs.lab02.exercise import make_mirrored
from distlab.labs.lab04.draws import (
    REPLICAS,
    cut_column,
    draw_batch,
    draw_gradients,
    draw_run,
    draw_test,
)
from distlab.labs.lab04.folders import bring_folder, make_folder, move_folder

ABSENT = (*ANSWERS, "utils.models")
make_exercise = partial(Exercise, lab="lab04", seconds=60)

RATE = 0.5  # learning rate of every trial
MOMENTUM = 0.875  # exact in float32, in which Keras keeps it
CLASS_MOMENTUM = ClassNumber(  # of exercise 5
    "momentum", (MOMENTUM, 0.75, 0.625, 0.5), ("momentum {}.", "SGD(0.5, momentum={})")
)


LOUDER = 0.5  # by how much the features of exercise 5 are larger on replica 1


def _make_model(strategy: Any, kernel: np.ndarray, bias: bool = False) -> Any:
    import keras

    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((kernel.shape[0],), dtype="float64"),
                keras.layers.Dense(kernel.shape[1], use_bias=bias, dtype="float64"),
            ]
        )
    model.set_weights([kernel, np.zeros(kernel.shape[1])][: 1 + bias])
    return model


def _make_state(
    strategy: Any, kernel: np.ndarray, momentum: float = 0.0, bias: bool = False
) -> tuple[Any, Any]:
    """Return a model with these weights, and its optimizer."""
    import keras

    model = _make_model(strategy, kernel, bias)
    with strategy.scope():
        optimizer = keras.optimizers.SGD(RATE, momentum=momentum)
        optimizer.build(model.trainable_variables)
    return model, optimizer


# ---- exercise 1: one step


def try_step(train_step: Callable[..., Any], seed: int, examples: int) -> dict[str, Any]:
    """Run one step on four replicas; return the weights after it and the sum of the losses.

    The weights are [785, 10], the biases below the kernel.
    """
    import tensorflow as tf

    images, labels, kernel = draw_batch(seed, examples)
    strategy = make_mirrored(REPLICAS)
    model, optimizer = _make_state(strategy, kernel, bias=True)

    def split(column: np.ndarray) -> Any:
        parts = cut_column(column)
        return strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(parts[context.replica_id_in_sync_group])
        )

    arguments = (model, optimizer, split(images), split(labels), examples)
    found = strategy.run(train_step, args=arguments)
    parts = [read_number(x, "train_step") for x in strategy.experimental_local_results(found)]
    return {"weights": np.vstack(model.get_weights()), "sum of losses": sum(parts)}


def contrast_steps(got: Any, right: Any) -> str:
    """Return how far the weights are from the right ones at most, and both sums of losses."""
    if not isinstance(got, dict) or set(got) != set(right):
        return contrast(got, right)
    sums = (
        f"a sum of losses of {show(got['sum of losses'])} (right: {show(right['sum of losses'])})"
    )
    if same(got["weights"], right["weights"], 1e-5):
        return f"gave the right weights, and {sums}"
    wanted = right["weights"]
    wanted = np.array(wanted.sums) if isinstance(wanted, Digest) else add_up(wanted)
    given = as_numbers(got["weights"])
    far = float(np.linalg.norm(add_up(given) - wanted)) / len(wanted) ** 0.5
    return f"gave weights that are about {far:.3g} away from those of one device, and {sums}"


STEP = make_exercise(
    name="step",
    function="train_step",
    examples=((1, 32), (2, 30)),
    mistakes={
        "own-mean": "each replica averaged over its own examples: divide by the global batch",
        "one-variable": "only the kernel was trained: the biases are among "
        "model.trainable_variables, too",
        "not-applied": "the weights didn't change: the gradients were never applied",
        "uphill": "the weights went up the gradient: apply_gradients already subtracts",
        "applied-twice": "the gradients were applied twice",
        "summed-twice": "four times too far: apply_gradients already adds up the replicas' "
        "gradients, so an all-reduce before it adds them up once more",
        "only-summed": "the gradients are those of a sum: divide it by the global batch first",
        "softmax-first": "the model's outputs are logits: the loss takes their softmax already",
        "own-mean-over-replicas": "each replica took the mean over its own examples, divided by "
        "the number of replicas: correct only as long as all shares are equal",
        "divided-twice": "the gradients are divided by the number of replicas once more: the "
        "global batch counts all replicas' examples already",
        "own-mean-returned": "the weights are right, but the returned losses are the replicas' own "
        "means: return the loss whose gradient was taken",
        "loss-after": "the weights are right, and the loss was computed after the step: return the "
        "one whose gradient was taken",
        "unscaled-loss": "the weights are right, but the returned losses aren't divided: "
        "return the loss whose gradient was taken",
    },
    hint="the weights after the step are the same as on one device, and the replicas' losses add "
    "up to its mean loss",
    tolerance=1e-5,
    contrast=contrast_steps,
    run=each(try_step),
)


# ---- exercise 2: one epoch


def try_epoch(run_epoch: Callable[..., Any], losses: Sequence[float], batch: int) -> dict[str, Any]:
    """Return the epoch's mean loss that `run_epoch` finds, where example k has `losses[k]`.

    And how many examples its calls of `step` have seen, over both replicas.
    """
    import tensorflow as tf

    strategy = make_mirrored(2)
    data = tf.data.Dataset.from_tensor_slices(np.asarray(losses)).batch(batch)
    with strategy.scope():
        options = {"aggregation": tf.VariableAggregation.SUM, "trainable": False}
        options["synchronization"] = tf.VariableSynchronization.ON_READ
        seen = tf.Variable(0, dtype=tf.int64, **options)

    def step(share: Any) -> Any:
        count = tf.size(share, out_type=tf.int64)
        seen.assign_add(count)
        return tf.reduce_sum(share), count

    found = run_epoch(strategy, _distribute(strategy, data), step)
    return {"mean loss": read_number(found, "run_epoch"), "examples seen": int(seen.numpy())}


def _distribute(strategy: Any, data: Any) -> Any:
    from utils.data.batches import without_autotune

    return strategy.experimental_distribute_dataset(without_autotune(data))


EPOCH = make_exercise(
    name="epoch",
    function="run_epoch",
    examples=(((1.0, 2.0, 3.0, 4.0, 10.0), 4), ((5.0, 1.0, 0.0, 2.0, 8.0, 6.0, 7.0), 3)),
    mistakes={
        "mean-of-batches": "a mean of the batches' means: the last, smaller batch counts too much",
        "mean-of-shares": "a mean of the replicas' own means: shares of all sizes count alike",
        "stepped-twice": "step ran twice on every batch, and would have trained twice: one call of "
        "strategy.run returns both values",
        "last-batch": "this is the mean of the last batch alone",
        "last-missing": "the last batch is missing: it is smaller, and counts all the same",
        "first-batch": "this is the mean of the first batch alone: does return stand in the loop?",
        "first-missing": "the first batch is missing: a batch that was taken from an iterator "
        "doesn't come again",
        "not-divided": "this is the sum of all losses: divide it by the number of examples",
        "sum-of-last": "the last batch's sum is divided by all examples: add each batch's to it",
        "by-batches": "the sum is divided by the number of batches, not of examples",
        "first-replica": "only replica 0's examples were counted: reduce over the replicas",
        "full-batches": "the last batch was counted as a full one",
        "losses-averaged": "half of it: MEAN halves the losses (reduce with SUM), or each example "
        "is counted twice",
        "counts-averaged": "twice as much or more: MEAN divides the two replicas' counts by two, "
        "and rounds down. Reduce with SUM",
        "both-averaged": "too much: MEAN divides losses and counts by the two replicas, and rounds "
        "a count down, so that half an example is lost. Reduce both with SUM",
    },
    hint="the sum of all losses of the epoch, divided by the number of its examples",
    run=each(try_epoch),
)


# ---- exercise 3: accuracy


def try_accuracy(evaluate: Callable[..., Any], seed: int, examples: int, batch: int) -> float:
    """Return the accuracy that `evaluate` finds for a known model on `images` test images."""
    import tensorflow as tf

    images, labels, kernel = draw_test(seed, examples)
    strategy = make_mirrored(2)
    model = _make_model(strategy, kernel)
    data = tf.data.Dataset.from_tensor_slices((images, labels)).batch(batch)
    found = evaluate(strategy, model, _distribute(strategy, data))
    return read_number(found, "evaluate")


ACCURACY = make_exercise(
    name="accuracy",
    function="evaluate",
    examples=((3, 40, 16), (4, 21, 8)),
    mistakes={
        "mean-of-batches": "a mean of accuracies, of batches or of replicas: the last batch is "
        "smaller than the others, and counts as much as they do",
        "counted-wrong": "this is the share of wrong answers",
        "least-likely": "these are the classes with the lowest logit: use argmax",
        "not-divided": "this is the number of right answers: divide it by the number of images",
        "first-batch": "this is the accuracy of the first batch alone: does return stand in the "
        "loop?",
        "sum-of-last": "the last batch's right answers are divided by all images: add each batch's",
        "losses-averaged": "half of it: MEAN halves the right answers (reduce with SUM), or each "
        "image is counted twice",
        "shares-averaged": "the replicas' accuracies were averaged: a smaller share counts as much "
        "as the other. Reduce the number of right answers with SUM",
        "last-batch": "this is the accuracy of the last batch alone",
        "first-replica": "only replica 0's images were counted: reduce over the replicas",
        "full-batches": "the last batch was counted as a full one",
    },
    hint="the number of right answers, divided by the number of images",
    run=each(try_accuracy),
    evidence="result",
)


# ---- exercise 4: save and resume


def try_resume(
    functions: tuple[Callable[..., Any], Callable[..., Any]], seed: int, saved: int, total: int
) -> dict[str, Any]:
    """Train `saved` epochs of two steps on two replicas, save each, resume without a strategy.

    `functions` are `save_state` and `load_state`. Returns the weights [4, 3] after
    `total` epochs, and the epochs done that `load_state` said: of this run, and of an
    empty folder.
    """
    import tensorflow as tf

    save_state, load_state = functions
    gradients, kernel = draw_gradients(seed, total)
    with tempfile.TemporaryDirectory() as root:
        folder, strategy = make_folder(root), make_mirrored(2)
        model, optimizer = _make_state(strategy, kernel, MOMENTUM)
        for epoch in range(saved):
            for gradient in gradients[epoch]:
                _apply(strategy, optimizer, model, gradient)
            save_state(folder, model, optimizer, epoch + 1)
        alone = tf.distribute.get_strategy()
        model, optimizer = _make_state(alone, np.zeros_like(kernel), MOMENTUM)
        with move_folder(folder) as moved:
            done = int(read_number(load_state(moved, model, optimizer), "load_state"))
    nothing = _load_nothing(load_state, kernel)
    for gradient in gradients[max(done, 0) :].reshape(-1, *kernel.shape):
        _apply(alone, optimizer, model, gradient)
    weights = np.asarray(model.get_weights()[0])
    return {"epochs done": done, "epochs in an empty folder": nothing, "weights": weights}


def _load_nothing(load_state: Callable[..., Any], kernel: np.ndarray) -> Any:
    """Return what `load_state` says of an empty folder; "an error" if it stops with one."""
    import tensorflow as tf

    alone = tf.distribute.get_strategy()
    model, optimizer = _make_state(alone, kernel, MOMENTUM)
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = load_state(folder, model, optimizer)
        except Exception:  # whatever a learner's code raises where there is nothing to read
            return "an error"
    return int(read_number(found, "load_state"))


def _apply(strategy: Any, optimizer: Any, model: Any, gradient: np.ndarray) -> None:
    import tensorflow as tf

    shares = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(gradient / context.num_replicas_in_sync)
    )  # a separate tensor for each replica: a shared one wouldn't be added up
    (variable,) = model.trainable_variables
    strategy.run(lambda share: optimizer.apply_gradients([(share, variable)]), args=(shares,))


RESUME = make_exercise(
    name="resume",
    function="save_state and load_state",
    examples=((5, 3, 5), (6, 2, 6)),
    mistakes={
        "no-optimizer": "the optimizer's state wasn't restored: its momentum begins at 0 again",
        "steps": "load_state returns the epochs done: this is the number of the optimizer's steps",
        "epoch-forgotten": "the number of epochs done was lost, so all of them were trained again",
        "oldest": "the oldest state was loaded, not the latest",
        "nothing-restored": "nothing was restored: the model has its first weights",
        "empty-not-zero": "where nothing was saved, 0 epochs are done",
        "kept-in-memory": "an empty folder gives the epochs of another run: the state is kept in "
        "this process and not in the folder, and is lost with it",
        "empty-folder": "load_state stops with an error if nothing was saved. It should return 0",
    },
    hint="compare what went into the folder with what has to come out: weights, the optimizer's "
    "state, the number of epochs done",
    tolerance=1e-5,
    run=each(try_resume),
)


# ---- exercise 5: the whole loop


def try_program(train: Callable[..., Any], seed: int) -> dict[str, Any]:
    """Run a whole loop for one epoch, and cut the next run of four epochs off in epoch 3.

    An epoch has 3 steps of 2 replicas. What is left is the folder that both calls were given.
    """
    with tempfile.TemporaryDirectory() as root:
        folder = make_folder(root)
        _, losses = _call_once(train, seed, 1, folder)
        with move_folder(folder) as moved:
            _call_once(train, seed, 4, moved, cut_after=8)
        return {"losses of one epoch": losses, "left": pack_folder(Folder(moved))}


def resume_program(train: Callable[..., Any], left: list[Any], seed: int) -> dict[str, Any]:
    """Finish the fourth epoch with the folder that is left. Return the last losses and weights."""
    with bring_folder(left) as folder:
        weights, losses = _call_once(train, seed, 4, folder)
    return {"losses after the run was cut off": losses, "weights": weights}


def _call_once(
    train: Callable[..., Any], seed: int, epochs: int, folder: str, cut_after: int | None = None
) -> tuple[Any, Any]:
    """Return the weights and losses of one call, None for both if it was cut off."""
    images, labels, kernel = draw_run(seed)
    maker = ModelMaker(kernel, "float64", LOUDER, cut_after)
    try:
        with cutting_off():
            found = train(make_mirrored(2), lambda: maker(), images, labels, 8, epochs, folder)
    except ModelCutOff:
        return None, None
    wanted = ("the weights", "a list with each epoch's mean loss")
    weights, losses = require_parts(found, "train", *wanted)
    weights = read_array(weights, "train", "an array of weights first: model.get_weights()[0]")
    return weights, [read_number(x, "train, in its list of losses,") for x in losses]


PROGRAM = make_exercise(
    name="program",
    number=CLASS_MOMENTUM,
    function="train",
    examples=((31,),),
    mistakes={
        "saved-at-the-end": "the run that was cut off had trained epoch 2, and nothing of it was "
        "left: save after every epoch, not when all are done",
        "began-again": "the last call trained all four epochs: restore the latest checkpoint "
        "before the loop, and begin at its epoch",
        "epochs-more": "epochs says how many there are in all, not how many more: with 4 of them "
        "and 2 saved, 2 are left",
        "no-optimizer": "the optimizer's state wasn't restored: its momentum begins at 0 again",
        "own-mean": "each replica averaged over its own examples: divide by the size of this batch",
        "full-batch": "the last batch holds 5 examples, not 8: divide by what it holds",
        "rest-dropped": "the last, smaller batch was left out: train on all examples",
        "another-momentum": "this is another momentum than the contract's, or none",
        "another-rate": "the learning rate isn't the contract's: it isn't multiplied or divided by "
        "the number of replicas",
        "another-batch": "the batches are too small or too large: batch_size is the global batch",
        "mean-of-batches": "the weights are right, the losses are means of batch means: the last, "
        "smaller batch counts too much",
        "not-distributed": "these are the weights of one device: call make_model in the strategy's "
        "scope, distribute the data, and step with strategy.run",
    },
    hint="which of it is right: the first call's loss, the last call's losses, the weights?",
    tolerance=1e-5,
    run=each(try_program),
    resume=resume_program,
    evidence="result",
    seconds=120,
)
