"""Lab 05, loss scaling: the update that four replicas make of a loss, and the messages for it.

Exercises 1, 2 and 4 are losses: `step.measure` takes a step with each, and returns weights before
- after, the applied update. Exercise 3 returns what each replica applies.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from distlab.errors import CourseError
from distlab.exercises.comparing import Digest, add_up, as_numbers, same, show
from distlab.exercises.exercise import Answer, Cases, Exercise, contrast, each
from distlab.exercises.refusing import read_number, refuse, require_value
from distlab.labs import ANSWERS
from distlab.labs.lab05.step import (
    FULL_BATCH,
    REPLICAS,
    compare_updates,
    get_strategy,
    measure,
)

ABSENT = (*ANSWERS, "distlab.labs.lab05.reports")

# ---- messages for an update


def contrast_updates(got: Any, right: Any) -> str:
    """Return how an update compares with the right one: its ratio, and its direction."""
    shape = right.shape if isinstance(right, Digest) else np.shape(right)
    given = as_numbers(got)
    if given is None or given.shape != shape:
        return f"gave no update of shape {list(shape)}"
    if not np.isfinite(given).all():
        return "gave an update of nan"
    wanted = np.array(right.sums) if isinstance(right, Digest) else np.asarray(right)
    given = add_up(given) if isinstance(right, Digest) else given
    if not wanted.any():
        raise CourseError("The correct update must not be zero. Choose another case.")
    ratio, off = compare_updates(given, wanted)
    turned = f" and turned, residual {off:.2g}" if off > 1e-4 else ""
    return f"gave an update of ×{ratio:.4g} the single-device update{turned}, should give ×1"


def make_exercise(
    name: str, function: str, examples: Cases, mistakes: Mapping[str, str], hint: str, **more: Any
) -> Exercise:
    """Return one exercise of this lab, whose loss is called as `measure(name)` says."""
    sizes = " and ".join(f"{case[1]:g}" for case in examples)
    fields = {
        "run": measure(name),
        "tolerance": 1e-4,
        "seconds": 60,
        "contrast": contrast_updates,
        "success": f"{function}: ×1 the single-device update, for batches of {sizes} examples",
    }
    return Exercise("lab05", name, function, examples, mistakes, hint, **(fields | more))


OWN_MEAN = "each replica averaged over its own examples: divide by the global batch"
PLAIN = make_exercise(
    "plain",
    "replica_loss",
    ((1, 64), (2, 50)),
    {
        "errors-summed": "ten times too large: the ten errors of an example were added up, and "
        "nothing divides by their number. compute_average_loss divides by the batch only",
        "own-mean": OWN_MEAN,
        "mean-of-four": "that is a mean over the replica's own examples, divided by 4: correct "
        "only as long as all shares are equal",
        "only-summed": "the errors are added up and never divided",
        "divided-twice": "it's divided by the number of replicas once more: the global batch "
        "counts them already",
        "examples-summed": "the examples' losses are added up and never divided: divide by the "
        "global batch",
        "mean-of-means": "that is a mean over the replica's own examples, divided by the global "
        "batch as well: one of the two divisions is enough, the one by the global batch",
        "other-axis": "the replica's own examples are averaged and the ten errors added up: it has "
        "to be the other way round (axis 0 counts the examples, axis 1 the errors)",
        "only-replicas": "it's divided by the number of replicas, not of examples",
    },
    "an example's loss is the mean of its ten errors, and a replica's loss is its part of one mean "
    "over all examples of the batch",
)
WEIGHTED = make_exercise(
    "weighted",
    "weighted_loss",
    ((3, 64), (4, 34)),
    {
        "own-mean": OWN_MEAN,
        "weights-ignored": "every example counts the same: multiply each loss by its weight",
        "losses-unweighted": "the divisor is right, and the losses are added up as they are: "
        "multiply each by its weight first",
        "own-weights": "divided by the weights of the replica's own examples, which differ between "
        "replicas: add them up over all replicas first",
        "by-examples": "divided by the number of examples: a sound estimate too, and what "
        "compute_average_loss gives, but a weighted mean is divided by the sum of all weights",
        "times-replicas": "four times too large: the weights are to be added up over the replicas "
        "(a mean of their four sums is a quarter), and the losses aren't, since TensorFlow already "
        "adds up the gradients",
        "divided-twice": "it's divided by the number of replicas as well: the sum of all weights "
        "is the only divisor",
        "averaged-too": "the replica took a mean over its own examples before it divided by the "
        "sum of all weights: add them up",
        "mean-weight": "a mean loss times a mean weight isn't the mean of weighted losses",
    },
    "a replica's part is its sum of weight x loss; the divisor is one number, the same everywhere",
)


def draw_gradients(seed: int) -> list[list[np.ndarray]]:
    """Return each replica's gradients: one [20, 6] and one [6], with a part common to all."""
    rng = np.random.default_rng(seed)
    common = [rng.normal(size=shape) for shape in ((20, 6), (6,))]
    return [[g + rng.normal(size=g.shape) for g in common] for _ in range(REPLICAS)]


def try_clipped(clip_gradients: Callable[..., Any], seed: int, max_norm: float) -> np.ndarray:
    """Return the sum of what the replicas apply, kernel and bias one after the other."""
    import tensorflow as tf

    parts = draw_gradients(seed)
    strategy = get_strategy()
    held = strategy.experimental_distribute_values_from_function(
        lambda c: [tf.constant(g) for g in parts[c.replica_id_in_sync_group]]
    )
    found = strategy.run(lambda given: _check_list(clip_gradients(given, max_norm)), args=(held,))
    own = [strategy.experimental_local_results(one) for one in found]
    return np.concatenate([np.sum([np.asarray(x) for x in one], axis=0).ravel() for one in own])


def _check_list(found: Any) -> list[Any]:
    """Return what an answer gave on one replica, if it's a list of two gradients."""
    import tensorflow as tf

    require_value(found, "clip_gradients", "a list of two gradients")
    found = list(found) if isinstance(found, list | tuple) else [found]
    if [list(np.shape(one)) for one in found] != [[20, 6], [6]]:
        shapes = ", ".join(str(list(np.shape(one))) for one in found)
        raise refuse(
            "clip_gradients must return a list with one tensor for each variable, of its "
            f"gradient's shape, got {shapes}."
        )
    return [tf.convert_to_tensor(one) for one in found]


CLIPPED = make_exercise(
    "clipped",
    "clip_gradients",
    ((5, 10.0), (6, 4.0), (7, 1e3)),
    {
        "not-clipped": "the gradients came back as they were: the whole batch's gradient is longer "
        "than max_norm",
        "clipped-before": "each replica clipped its own part, which is shorter than the sum. What "
        "has to be clipped is the gradient of the whole batch: ask the other replicas first",
        "to-its-share": "each replica clipped its own part to a share of max_norm. The parts point "
        "in different directions, so their sum is shorter than that, and turned",
        "summed-again": "four times too large: that is the clipped gradient of the whole batch, on "
        "every replica, and TensorFlow adds the four up once more",
        "each-variable": "each variable's gradient was clipped separately, which turns the update: "
        "the norm is taken over all of them together",
        "always-scaled": "a gradient that is shorter than max_norm stays unchanged: clipping never "
        "makes it longer",
        "norms-added": "the norm of a sum isn't the sum of the norms, nor the root of the sum of "
        "their squares: add up the gradients first, then take the norm",
        "no-root": "the norm is the square root of the sum of squares: the root is missing",
        "divided-twice": "it's divided by the number of replicas once more: the gradients are "
        "scaled already, so each replica's part is its own gradient times the common factor",
        "minimum-for-maximum": "a short gradient was made longer, and a long one left: the factor "
        "is the smaller of 1 and max_norm / norm",
        "each-number": "each number was clipped separately, which turns the update: all are scaled "
        "by one factor",
        "norm-not-summed": "you used the norm of the mean of the replicas' gradients: their sum is "
        "four times as long",
    },
    "the replicas' gradients add up to the one that has to be clipped: what do you need to know of "
    "it, and what is your part of the result?",
    run=each(try_clipped),
    evidence="result",
    success="clip_gradients: ×1 the clipped gradient, for two that are too long and one that isn't",
)


def measure_uneven(uneven_loss: Answer, cases: Cases) -> list[Any]:
    """Return each case's update, and the loss of a replica without examples."""
    nothing = [try_empty(uneven_loss, examples) for _, examples, _ in cases]
    updates = measure("uneven")(uneven_loss, cases)
    return [{"update": u, "loss of nothing": n} for u, n in zip(updates, nothing)]


def try_empty(uneven_loss: Callable[..., Any], batch_examples: int) -> float:
    """Return `uneven_loss` of a replica without examples, next to one with `batch_examples`."""
    import tensorflow as tf

    strategy = get_strategy()
    shares = strategy.experimental_distribute_values_from_function(
        lambda c: tf.ones([0 if c.replica_id_in_sync_group else batch_examples], tf.float64)
    )
    found = strategy.run(uneven_loss, args=(shares, batch_examples, FULL_BATCH))
    return read_number(strategy.experimental_local_results(found)[-1], "uneven_loss")


def contrast_uneven(got: Any, right: Any) -> str:
    """Return how the update compares with the right one, or else the loss of no examples."""
    if not isinstance(got, dict) or set(got) != set(right):
        return contrast(got, right)
    if not same(got["update"], right["update"], 1e-4):
        return contrast_updates(got["update"], right["update"])
    return f"gave {show(got['loss of nothing'])} for no losses at all, should give 0"


UNEVEN = make_exercise(
    "uneven",
    "uneven_loss",
    ((7, 6, 32), (8, 2, 32), (11, 32, 32)),
    {
        "own-mean": "each replica averaged over its own count, which differs: examples on a "
        "smaller share count for more",
        "full-batch": "divided by the size of a full batch, though this one is smaller",
        "own-times-replicas": "own count times replicas, as compute_average_loss() has it without "
        "a batch size: wrong when shares differ",
        "not-divided": "the losses are added up and never divided: divide by the examples of this "
        "batch",
        "divided-twice": "it's divided by the number of replicas as well: the examples of this "
        "batch are those of all replicas",
        "mean-of-nothing": "a replica without examples took the mean of nothing, which is nan: the "
        "sum of nothing is 0",
        "empty-not-zero": "a replica without examples adds nothing: its loss is 0",
    },
    "write down what one device would divide by if it got this batch",
    run=measure_uneven,
    contrast=contrast_uneven,
)
# ---- exercise 5: which bug gives such an update


BUGS = ("own-mean", "not-divided", "divided-twice", "full-batch", "own-weights", "penalty-on-each")


def try_diagnosis(name_bug: Callable[..., Any], *case: Any) -> Any:
    """Return the word that `name_bug` gives for the report that `make_report(*case)` makes."""
    from distlab.labs.lab05.reports import make_report  # knows the bug, so it is absent for answers

    return name_bug(*make_report(*case))


_EVEN, _UNEVEN = (16,) * 4, (6, 5, 5, 5)
DIAGNOSIS = Exercise(
    lab="lab05",
    name="diagnosis",
    function="name_bug",
    examples=(
        ("right", 1, _EVEN, "plain"),
        ("own-mean", 2, _EVEN, "plain"),
        ("own-mean", 3, _UNEVEN, "plain"),
        ("not-divided", 4, _EVEN, "plain"),
        ("not-divided", 5, _UNEVEN, "plain"),
        ("divided-twice", 6, _EVEN, "weighted"),
        ("divided-twice", 7, _UNEVEN, "penalized"),
        ("full-batch", 8, _UNEVEN, "plain"),
        ("full-batch", 9, (8, 8, 8, 8), "plain"),
        ("own-weights", 10, _EVEN, "weighted"),
        ("penalty-on-each", 11, _EVEN, "penalized"),
        ("right", 12, _UNEVEN, "weighted"),
    ),
    mistakes={
        "below-one": "a ratio below 1 has two causes: dividing by the replicas once more gives "
        "1 / replicas, a full batch's size gives examples / full batch",
        "above-one": "a ratio above 1 has several causes: the replicas' own means give their "
        "number, a sum that was never divided gives the number of examples",
        "residual-ignored": "these updates are turned: look at the residual as well as the ratio",
        "not-measured": "you answered by the setting alone: weights or a penalty aren't a bug. "
        "Compare ratio and residual first",
        "weights-not-seen": "a turned update of a step with sample weights: it is the weights "
        "that each replica divides by on its own",
        "turned-is-penalty": "an update can turn without a penalty: uneven shares or weights do "
        "it too",
        "called-right": "that update isn't right: a right one has ratio 1 and residual 0, whatever "
        "the setting",
        "equal-shares": "with uneven shares the replicas' own means give no exact 4, and turn the "
        "update",
    },
    hint="is the update only longer or shorter (residual 0), or turned as well? Then which "
    "number of the report is the ratio?",
    run=each(try_diagnosis),
    plain=True,
)
