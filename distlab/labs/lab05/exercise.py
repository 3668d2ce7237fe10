"""Lab 05, loss scaling: one step on four real replicas, and what each loss makes of it.

Each exercise is a loss function. `run` takes one step of plain gradient descent at
learning rate 1 with it and returns weights before - after: the update that was applied.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from distlab.errors import CourseError
from distlab.exercises import softmax
from distlab.exercises.comparing import Digest, add_up, as_numbers, same, show
from distlab.exercises.exercise import Answer, Cases, Exercise, contrast, each
from distlab.exercises.refusing import own_frames, read_number, refuse

REPLICAS = 4
FULL_BATCH = 64  # of the steps that exercise 5 reports
Step = Mapping[str, Any]
Batch = tuple[np.ndarray, np.ndarray]  # images [examples, inputs], labels [examples]


def make_step(
    seed: int, examples: int = 64, global_batch_size: int | None = None, strength: float = 0.0
) -> dict[str, Any]:
    """Return one step's inputs as plain data, drawn from `seed`.

    `picks` are the places of `examples` training images of Fashion-MNIST, `weights`
    one sample weight for each, `model` the seed of the model's first weights,
    `strength` the factor of its penalty.
    """
    rng = np.random.default_rng(seed)
    return {
        "picks": rng.integers(0, 10_000, size=examples).tolist(),
        "weights": rng.uniform(0.25, 4.0, size=examples).tolist(),
        "model": int(rng.integers(2**31)),
        "global_batch_size": examples if global_batch_size is None else global_batch_size,
        "strength": strength,
    }


def read_batch(step: Step) -> Batch:
    """Return the step's images, scaled to [0, 1], and labels."""
    return softmax.read_examples(step["picks"])


def draw_start(step: Step) -> np.ndarray:
    """Return the model's weights before the step, [784, 10]."""
    return softmax.draw_weights(step["model"])


# ---- the step that is measured, on real replicas


def measure(kind: str) -> Callable[[Answer, Cases], list[Any]]:
    """Return the way to run a loss of this kind: cases are arguments of `make_step`.

    `kind` says what the loss is called with: "plain" (losses, global_batch_size),
    "weighted" (losses, weights, global_batch_size), "penalized" (losses, penalty,
    global_batch_size, replicas), "uneven" (losses, batch_examples, global_batch_size).
    """
    return lambda loss, cases: measure_updates(loss, [make_step(*case) for case in cases], kind)


def measure_updates(loss: Callable[..., Any], steps: Sequence[Step], kind: str) -> list[np.ndarray]:
    """Take each step on four replicas; return the updates, [inputs, outputs] each.

    Each step has a model of its own; all are taken in one call of the replicas.
    Raises AssertionError if the loss returns anything but one number.
    """
    import tensorflow as tf

    batches = [read_batch(step) for step in steps]
    starts = [draw_start(step) for step in steps]
    strategy = _get_strategy()
    with strategy.scope():
        models = [tf.Variable(w, aggregation=tf.VariableAggregation.SUM) for w in starts]

    def cut_shares(context: Any) -> list[tuple[Any, ...]]:
        replica = context.replica_id_in_sync_group
        return [_cut_share(step, batch, replica, kind) for step, batch in zip(steps, batches)]

    def take_steps(shares: Sequence[tuple[Any, ...]]) -> None:
        found = [_differentiate(loss, *each, kind) for each in zip(shares, models, steps)]
        tf.distribute.get_replica_context().merge_call(_subtract, args=(models, found))

    shares = strategy.experimental_distribute_values_from_function(cut_shares)
    with own_frames():
        strategy.run(take_steps, args=(shares,))
    return [start - weights.numpy() for start, weights in zip(starts, models)]


@cache
def _get_strategy() -> Any:
    from utils.devices import use_logical_devices
    from utils.strategies import make_strategy

    use_logical_devices(REPLICAS)
    return make_strategy("mirrored", REPLICAS)


def _cut_share(step: Step, batch: Batch, replica: int, kind: str) -> tuple[Any, ...]:
    """Return a replica's images, labels and, where the loss gets them, sample weights."""
    import tensorflow as tf

    columns = (*batch, np.asarray(step["weights"])) if kind == "weighted" else batch
    return tuple(tf.constant(np.array_split(column, REPLICAS)[replica]) for column in columns)


def _differentiate(loss: Any, share: tuple[Any, ...], weights: Any, step: Step, kind: str) -> Any:
    import tensorflow as tf

    with tf.GradientTape() as tape:
        value = _call_loss(loss, share, weights, step, kind)
    gradient = tape.gradient(value, weights)
    if gradient is None and not len(share[1]):
        return tf.zeros_like(weights)  # nothing of it depends on the weights
    if gradient is None:
        raise refuse(f"{_name(loss)} returned a number that the losses do not reach")
    return gradient


def _subtract(strategy: Any, models: Sequence[Any], found: Sequence[Any]) -> None:
    """Sum the replicas' gradients and subtract them: one all-reduce for all models."""
    totals = strategy.extended.batch_reduce_to("SUM", list(zip(found, models)))
    for weights, total in zip(models, totals):
        strategy.extended.update(weights, lambda w, g: w.assign_sub(g), (total,), group=False)


def _call_loss(loss: Any, share: tuple[Any, ...], weights: Any, step: Step, kind: str) -> Any:
    import tensorflow as tf

    images, labels, *sample_weights = share
    outputs = tf.matmul(images, weights)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, outputs)  # [share]
    more = [*sample_weights, step["global_batch_size"]]
    if kind == "penalized":
        more = [step["strength"] * tf.reduce_sum(tf.square(weights)), *more, REPLICAS]
    elif kind == "uneven":
        more = [len(step["picks"]), *more]
    value = loss(losses, *more)
    if isinstance(value, int | float) and value == 0 and not len(images):
        value = tf.zeros([], losses.dtype)
    if not tf.is_tensor(value) or value.shape.rank != 0:
        shown = f"shape {list(value.shape)}" if tf.is_tensor(value) else repr(value)[:60]
        raise refuse(f"{_name(loss)} returned {shown}: a scalar tensor is wanted")
    return value


def _name(loss: Any) -> str:
    return getattr(loss, "__name__", "the loss")


# ---- what is said of an update


def compare_updates(given: np.ndarray, wanted: np.ndarray) -> tuple[float, float]:
    """Return how long `given` is along `wanted`, and the residual: what is left of it across."""
    square = float(np.sum(wanted * wanted))
    ratio = float(np.sum(given * wanted)) / square
    return ratio, float(np.linalg.norm(given - ratio * wanted)) / square**0.5


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
        raise CourseError("the right update is zero: choose another case")
    ratio, off = compare_updates(given, wanted)
    turned = f" and turned, residual {off:.2g}" if off > 1e-4 else ""
    return f"gave an update of ×{ratio:.4g} the single-device gradient{turned}, should give ×1"


def make_exercise(
    name: str, function: str, examples: Cases, mistakes: Mapping[str, str], hint: str, **more: Any
) -> Exercise:
    """Return one exercise of this lab, whose loss is called as `measure(name)` says."""
    sizes = " and ".join(str(case[1]) for case in examples)
    fields = {
        "run": measure(name),
        "tolerance": 1e-4,
        "shows_case": False,
        "contrast": contrast_updates,
        "success": f"{function}: ×1 the single-device gradient, for batches of {sizes} examples",
    }
    return Exercise("lab05", name, function, examples, mistakes, hint, **(fields | more))


OWN_MEAN = "each replica averaged over its own examples: divide by the global batch"
PLAIN = make_exercise(
    "plain",
    "replica_loss",
    ((1, 64), (2, 50)),
    {
        "own-mean": OWN_MEAN,
        "mean-of-four": "a mean over the replica's own examples, divided by 4: right only as long "
        "as all shares are equal",
        "only-summed": "the losses are added up and never divided",
        "divided-twice": "divided by the number of replicas once more: the global batch counts "
        "them already",
        "only-replicas": "divided by the number of replicas, not of examples",
    },
    "a replica's loss is its part of one mean over all examples of the batch",
)
WEIGHTED = make_exercise(
    "weighted",
    "weighted_loss",
    ((3, 64), (4, 34)),
    {
        "own-mean": OWN_MEAN,
        "weights-ignored": "every example counts the same: multiply each loss by its weight",
        "own-weights": "divided by the weights of the replica's own examples, which differ between "
        "replicas: add them up over all replicas first",
        "by-examples": "divided by the number of examples: a sound estimate too, and what "
        "compute_average_loss gives, but a weighted mean is divided by the sum of all weights",
        "times-replicas": "four times too large: the weights are to be added up over the replicas "
        "(a mean of their four sums is a quarter), and the losses are not, since TensorFlow adds "
        "up the gradients by itself",
        "mean-weight": "a mean loss times a mean weight is not the mean of weighted losses",
    },
    "a replica's part is its sum of weight x loss; the divisor is one number, the same everywhere",
)
PENALIZED = make_exercise(
    "penalized",
    "penalized_loss",
    ((5, 64, 64, 0.05), (6, 50, 50, 0.1)),
    {
        "on-every-replica": "the penalty was added in full on every replica, so it counts four "
        "times",
        "penalty-by-batch": "the penalty belongs to the weights, not to examples: not divided by "
        "the batch",
        "all-by-replicas": "only the penalty is divided by the replicas: the data part has its "
        "divisor already",
        "penalty-forgotten": "the penalty is missing",
        "own-mean": OWN_MEAN,
    },
    "ask of each of the two parts how often it is added up, and how often it should be",
)


def measure_uneven(uneven_loss: Answer, cases: Cases) -> list[Any]:
    """Return each case's update, and the loss of a replica without examples."""
    nothing = [try_empty(uneven_loss, examples) for _, examples, _ in cases]
    updates = measure("uneven")(uneven_loss, cases)
    return [{"update": u, "loss of nothing": n} for u, n in zip(updates, nothing)]


def try_empty(uneven_loss: Callable[..., Any], batch_examples: int) -> float:
    """Return `uneven_loss` of a replica without examples, next to one with `batch_examples`."""
    import tensorflow as tf

    strategy = _get_strategy()
    shares = strategy.experimental_distribute_values_from_function(
        lambda c: tf.ones([0 if c.replica_id_in_sync_group else batch_examples], tf.float64)
    )
    with own_frames():
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
        "mean-of-nothing": "a replica without examples took the mean of nothing, which is nan: the "
        "sum of nothing is 0",
        "empty-not-zero": "a replica without examples adds nothing: its loss is 0",
    },
    "write down what one device would divide by if it got this batch",
    run=measure_uneven,
    contrast=contrast_uneven,
)
# ---- exercise 5: which bug gives such an update


Shares = Sequence[int]  # examples on each replica


def make_report(bug: str, seed: int, shares: Shares, kind: str) -> tuple[Any, ...]:
    """Return what is measured of a step with one of BUGS in its loss.

    `kind` is "plain", "weighted" or "penalized". The report: ratio, residual, shares,
    size of a full batch, whether there are sample weights, whether there is a penalty.
    """
    rng = np.random.default_rng(seed)
    examples, own = sum(shares), np.repeat(shares, shares)  # own: [examples]
    slopes = rng.normal(1.0, 1.0, size=(examples, 20))  # of each example's loss
    weights = rng.uniform(0.25, 4.0, examples) if kind == "weighted" else np.ones(examples)
    replica = np.repeat(np.arange(len(shares)), shares)
    held = np.bincount(replica, weights, minlength=len(shares))[replica]  # weights on my replica
    penalty = rng.normal(0.0, 1.0, size=20) if kind == "penalized" else np.zeros(20)
    divisor = {"own-mean": own, "own-weights": held, "not-divided": 1, "full-batch": FULL_BATCH}
    one = weights / weights.sum() @ slopes + penalty
    times = len(shares) if bug == "penalty-on-each" else 1
    found = weights / divisor.get(bug, weights.sum()) @ slopes + times * penalty
    found = found / (len(shares) if bug == "divided-twice" else 1)
    ratio, residual = compare_updates(found, one)
    return (round(ratio, 4), round(residual, 4), list(shares), FULL_BATCH, kind == "weighted",
            kind == "penalized")  # fmt: skip


def try_diagnosis(name_bug: Callable[..., Any], *case: Any) -> Any:
    """Return the word that `name_bug` gives for the report that `make_report(*case)` makes."""
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
        "below-one": "a ratio below 1 has two causes: divided by the replicas once more gives "
        "exactly a quarter, a full batch's size gives examples / full batch",
        "above-one": "a ratio above 1 has several causes: the replicas' own means give their "
        "number, a sum that was never divided gives the number of examples",
        "residual-ignored": "these updates are turned: look at the residual as well as the ratio",
        "not-measured": "the report says right, ratio 1 and residual 0: weights or a penalty alone "
        "are no bug",
        "weights-not-seen": "a turned update of a step with sample weights: it is the weights "
        "that each replica divides by on its own",
        "turned-is-penalty": "an update can turn without a penalty: uneven shares or weights do "
        "it too",
        "equal-shares": "with uneven shares the replicas' own means give no exact 4, and turn the "
        "update",
    },
    hint="is the update only longer or shorter (residual 0), or turned as well? Then which "
    "number of the report is the ratio?",
    shows_case=False,
    run=each(try_diagnosis),
    plain=True,
)
