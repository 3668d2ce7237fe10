"""One step on four real replicas, and what is said of its update: for lab 05, loss scaling.

Each exercise is a loss function. `measure_steps` runs it under MirroredStrategy
with four replicas, takes one step of plain gradient descent at learning rate 1, and
returns weights before - after: the update that was applied. A way to scale a loss
multiplies each example's gradient with a factor, so what a known mistake applies is
computed here with NumPy alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distlab import progress
from distlab.errors import CourseError
from distlab.exercises import softmax
from distlab.exercises.checking import own_frames, refuse

REPLICAS = 4
PIXELS = 49  # of the small images that exercise 5 rebuilds, 7 x 7
Case = Mapping[str, Any]
Factor = Callable[[int, Case], float]  # (examples on this replica, case) -> factor of each


def make_case(
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


def read_batch(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Return the case's images [examples, 784], scaled to [0, 1], and labels [examples]."""
    return softmax.read_examples(case["picks"])


def shrink_images(images: np.ndarray) -> np.ndarray:
    """Return images [examples, 784] as the means of their 4 x 4 squares, [examples, 49]."""
    return images.reshape(-1, 7, 4, 7, 4).mean(axis=(2, 4)).reshape(-1, PIXELS)


def first_weights(case: Case, shape: tuple[int, int]) -> np.ndarray:
    """Return the model's weights before the step."""
    return softmax.draw_weights(case["model"], shape)


def share_out(examples: int) -> list[int]:
    """Return how many of a batch's examples each replica gets, as TensorFlow shares them out."""
    return [examples // REPLICAS + (k < examples % REPLICAS) for k in range(REPLICAS)]


# ---- the step that is measured, on real replicas


def measure_updates(
    loss: Callable[..., Any], cases: Sequence[Sequence[Any]], kind: str = "plain"
) -> list[np.ndarray]:
    """Return the update of `loss` for each of `cases`, which are arguments of `make_case`."""
    return measure_steps(loss, [make_case(*case) for case in cases], kind)


def measure_steps(
    loss: Callable[..., Any], cases: Sequence[Case], kind: str = "plain"
) -> list[np.ndarray]:
    """Take one step on four replicas for each case; return the updates, [inputs, outputs] each.

    `kind` says what `loss` is called with: "plain" (losses, global_batch_size),
    "weighted" (losses, weights, global_batch_size), "penalised" (losses, penalty,
    global_batch_size, replicas), "uneven" (losses, batch_examples,
    global_batch_size), "pixels" (losses [examples, 7, 7], global_batch_size).
    Each case has a model of its own; all are stepped in one call of the replicas.
    Raises AssertionError if the loss returns anything but one number.
    """
    import tensorflow as tf

    batches = [_read_inputs(case, kind) for case in cases]
    starts = [_draw_start(case, images, kind) for case, (images, _) in zip(cases, batches)]
    strategy = _get_strategy()
    with strategy.scope():
        models = [tf.Variable(w, aggregation=tf.VariableAggregation.SUM) for w in starts]

    def give_shares(context: Any) -> list[tuple[Any, ...]]:
        replica = context.replica_id_in_sync_group
        return [_cut_share(case, batch, replica) for case, batch in zip(cases, batches)]

    def step(shares: Sequence[tuple[Any, ...]]) -> None:
        found = [_differentiate(loss, *each, kind) for each in zip(shares, models, cases)]
        tf.distribute.get_replica_context().merge_call(_subtract, args=(models, found))

    shares = strategy.experimental_distribute_values_from_function(give_shares)
    with own_frames():
        strategy.run(step, args=(shares,))
    return [start - weights.numpy() for start, weights in zip(starts, models)]


def _read_inputs(case: Case, kind: str) -> tuple[np.ndarray, np.ndarray]:
    images, labels = read_batch(case)
    return (shrink_images(images) if kind == "pixels" else images), labels


def _draw_start(case: Case, images: np.ndarray, kind: str) -> np.ndarray:
    outputs = PIXELS if kind == "pixels" else softmax.CLASSES
    return first_weights(case, (images.shape[1], outputs))


def _cut_share(case: Case, batch: tuple[np.ndarray, np.ndarray], replica: int) -> tuple[Any, ...]:
    import tensorflow as tf

    edges = np.cumsum([0, *share_out(len(batch[1]))])
    part = slice(*edges[replica:][:2])
    return tuple(tf.constant(column[part]) for column in (*batch, np.asarray(case["weights"])))


def _differentiate(loss: Any, share: tuple[Any, ...], weights: Any, case: Case, kind: str) -> Any:
    import tensorflow as tf

    with tf.GradientTape() as tape:
        value = _call_loss(loss, share, weights, case, kind)
    gradient = tape.gradient(value, weights)
    if gradient is None and not len(share[1]):
        return tf.zeros_like(weights)  # nothing of it depends on the weights
    if gradient is None:
        raise refuse(f"{_name(loss)} returned a number that the losses do not reach")
    return gradient


def _subtract(strategy: Any, models: Sequence[Any], found: Sequence[Any]) -> None:
    """Sum the replicas' gradients and subtract them: the replicas meet once for all models."""
    totals = strategy.extended.batch_reduce_to("SUM", list(zip(found, models)))
    for weights, total in zip(models, totals):
        strategy.extended.update(weights, lambda w, g: w.assign_sub(g), (total,), group=False)


def _get_strategy() -> Any:
    from utils.devices import use_logical_devices
    from utils.strategies import make_strategy

    if "strategy" not in _STRATEGY:
        use_logical_devices(REPLICAS)
        _STRATEGY["strategy"] = make_strategy("mirrored", REPLICAS)
    return _STRATEGY["strategy"]


_STRATEGY: dict[str, Any] = {}


def _call_loss(loss: Any, share: tuple[Any, ...], weights: Any, case: Case, kind: str) -> Any:
    import tensorflow as tf

    images, labels, sample_weights = share
    outputs = tf.matmul(images, weights)
    batch = case["global_batch_size"]
    if kind == "pixels":
        losses = tf.reshape(tf.square(outputs - images), [-1, 7, 7])
        arguments = (losses, batch)
    else:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, outputs)  # [share]
        penalty = case["strength"] * tf.reduce_sum(tf.square(weights))
        arguments = {
            "plain": (losses, batch),
            "weighted": (losses, sample_weights, batch),
            "penalised": (losses, penalty, batch, REPLICAS),
            "uneven": (losses, len(case["picks"]), batch),
        }[kind]
    value = loss(*arguments)
    if isinstance(value, int | float) and value == 0 and not len(images):
        value = tf.zeros([], losses.dtype)
    if not tf.is_tensor(value) or value.shape.rank != 0:
        shown = f"shape {list(value.shape)}" if tf.is_tensor(value) else repr(value)[:60]
        raise refuse(f"{_name(loss)} returned {shown}: a scalar tensor is wanted")
    return value


def _name(loss: Any) -> str:
    return getattr(loss, "__name__", "the loss")


# ---- what an update should be, and what it is when it is not


@dataclass(frozen=True)
class Scaling:
    """A way to scale: what the gradients of one replica are multiplied with.

    `factor` is each example's, `penalty` the penalty's; `weigh` gives what stands in
    for the sample weights, [examples], the case's own if None.
    """

    factor: Factor
    penalty: Factor = lambda own, case: 1 / REPLICAS
    weigh: Callable[[Case], np.ndarray] | None = None


def compute_update(case: Case, scaling: Scaling, kind: str = "plain") -> np.ndarray:
    """Return the update that `scaling` applies, [inputs, outputs], with NumPy alone."""
    images, labels = _read_inputs(case, kind)
    start = _draw_start(case, images, kind)
    shares = share_out(len(labels))
    factors = np.concatenate([np.full(own, scaling.factor(own, case)) for own in shares])
    outputs = images @ start  # [examples, outputs]
    if kind == "pixels":
        slope = 2 * (outputs - images)
    else:
        slope = softmax.slopes(outputs, labels)
    if kind == "weighted":
        weigh = scaling.weigh or (lambda case: np.asarray(case["weights"]))
        slope = slope * weigh(case)[:, None]
    update = images.T @ (slope * factors[:, None])
    if kind == "penalised":
        times = sum(scaling.penalty(own, case) for own in shares)
        update += times * 2 * case["strength"] * start
    return update


def by_share(case: Case, combine: Callable[[np.ndarray], Any]) -> np.ndarray:
    """Return `combine` of each replica's sample weights, put in the place of each of them."""
    weights = np.asarray(case["weights"])
    parts = np.split(weights, np.cumsum(share_out(len(weights)))[:-1])
    return np.concatenate([np.broadcast_to(combine(part), part.shape) for part in parts])


@dataclass(frozen=True)
class UpdateCheck:
    """One exercise: the right scaling, the known wrong ones with their words, and worked cases."""

    exercise: str
    function: str
    kind: str
    right: Scaling
    mistakes: Mapping[str, tuple[str, Scaling]]
    cases: tuple[dict[str, Any], ...]
    hint: str
    lab: str = "lab05"

    def find_fault(
        self, cases: Sequence[Case], updates: Sequence[Any]
    ) -> tuple[str, str, str] | None:
        """Return (message, mistake's name or "", why) of the first wrong update, or None."""
        for case, update in zip(cases, updates, strict=True):
            wanted = compute_update(case, self.right, self.kind)
            given = np.asarray(update, dtype=float) if _is_numbers(update) else None
            if given is None or given.shape != wanted.shape:
                said = f"{self.function} gave no update of shape {list(wanted.shape)}"
                return said, "", self.hint
            if not _agree(given, wanted):
                name = self._find_mistake(cases, updates)
                why = self.mistakes[name][0] if name else self.hint
                said = describe_update(given, wanted, self.kind)
                return f"{self.function}: {said}, should give ×1: {why}", name, why
        return None

    def _find_mistake(self, cases: Sequence[Case], updates: Sequence[Any]) -> str:
        for name, (_, scaling) in self.mistakes.items():
            with np.errstate(invalid="ignore", divide="ignore"):
                wrong = [compute_update(case, scaling, self.kind) for case in cases]
            if all(_agree(np.asarray(u, float), w) for u, w in zip(updates, wrong, strict=True)):
                return name
        return ""

    def verify(self, loss: Callable[..., Any]) -> None:
        """Measure `loss` on the worked cases: print one line, or raise AssertionError."""
        self.verify_updates(measure_steps(loss, self.cases, self.kind))

    def verify_updates(self, updates: Sequence[Any]) -> None:
        """Judge the updates of the worked cases: print one line, or raise AssertionError."""
        fault = self.find_fault(self.cases, updates)
        if fault is not None:
            raise refuse(fault[0])
        sizes = " and ".join(str(len(case["picks"])) for case in self.cases)
        print(f"{self.function}: ×1 the single-device gradient, for batches of {sizes} examples")
        progress.record(self.lab, self.exercise)


def _is_numbers(update: Any) -> bool:
    return isinstance(update, np.ndarray) and update.dtype.kind == "f"


def _agree(given: np.ndarray, wanted: np.ndarray) -> bool:
    if given.shape != wanted.shape:
        return False
    if not np.isfinite(wanted).all():
        return not np.isfinite(given).all()
    scale = float(np.abs(wanted).max()) + 1e-12
    return bool(np.abs(given - wanted).max() <= 1e-4 * scale)


def describe_update(given: np.ndarray, wanted: np.ndarray, kind: str = "plain") -> str:
    """Return in words how an update compares with the right one: its ratio, and its direction."""
    if not np.isfinite(given).all():
        return "the update is nan"
    square = float(np.sum(wanted * wanted))
    if square == 0:
        raise CourseError("the right update is zero: choose another case")
    ratio = float(np.sum(given * wanted)) / square
    off = float(np.linalg.norm(given - ratio * wanted)) / square**0.5
    turned = f" and turned, residual {off:.2g}" if off > 1e-4 else ""
    return f"the update is ×{ratio:.4g} the single-device gradient{turned}"
