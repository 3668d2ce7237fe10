"""The patches that let Keras 3's `fit` run under MultiWorkerMirroredStrategy.

    from utils.keras_multi_worker import patch_keras_fit
    for line in patch_keras_fit():
        print(line)          # what was patched; nothing where nothing is broken

Keras 3.15 stops in its first step with "Attempt to convert a value (PerReplica...)
to a Tensor" when the strategy has several workers, for two reasons, both in
`keras.src.backend.tensorflow.trainer`:

1. `_maybe_symbolic_build` reduces the first batch with `strategy.reduce("MEAN", batch,
   axis=None)` only to learn its shapes. Workers hold different numbers of examples,
   and labels aren't floats: the first local replica's part has the shapes.
2. `reduce_per_replica` reduces metrics with `axis=0` ("mean") or none at all ("sum").
   A metric is a scalar and has no axis 0.

The patches act only under a strategy with several workers, and only in the versions of Keras that
we saw fail. Everything else calls Keras's own code. Reported as keras-team/keras#20585 and
tensorflow/tensorflow#72388.

`make_keras_variables` gives the environment variables that get a program that knows nothing
of this the Keras that it needs.

- `startup`: a folder for PYTHONPATH, so that any program gets the patches
"""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

BROKEN_VERSIONS = ("3.15.1",)  # those that were run, and failed
_MARK = "_patched_for_multi_worker"
KERAS_CHOICES = ("installed", "legacy", "patched")
STARTUP = Path(__file__).with_name("startup")  # Python runs its sitecustomize.py when it starts


def make_keras_variables(choice: str, python_path: str = "") -> dict[str, str]:
    """Return the environment variables that give a program the Keras of `choice`.

    "installed": none. "legacy": `tf.keras` is Keras 2 (tf_keras). "patched": Keras 3, which
    `patch_keras_fit` patches as soon as the program has imported it; `python_path` is the
    PYTHONPATH that the program has anyway. Raises InputError for another choice, and for
    "legacy" without tf_keras.
    """
    from ..checks import check_choice  # here: sitecustomize.py loads this file outside its package
    from ..errors import InputError

    if check_choice("keras", choice, KERAS_CHOICES) == "legacy":
        if find_spec("tf_keras") is None:
            raise InputError("keras='legacy' needs tf_keras. Run: pip install tf_keras")
        return {"TF_USE_LEGACY_KERAS": "1"}
    if choice == "patched":
        return {"PYTHONPATH": os.pathsep.join(filter(None, (str(STARTUP), python_path)))}
    return {}


def patch_keras_fit() -> tuple[str, ...]:
    """Patch Keras 3's trainer for several workers. Return what was patched, a line each.

    Call it once before `fit`; a second call does nothing and returns nothing. In a version of Keras
    outside `BROKEN_VERSIONS` it changes nothing and says so.

        for line in patch_keras_fit():
            print(line)
    """
    import keras
    from keras.src.backend.tensorflow import trainer

    if keras.__version__ not in BROKEN_VERSIONS:
        known = ", ".join(BROKEN_VERSIONS)
        return (f"Keras {keras.__version__}: left unchanged (known to need a patch: {known})",)
    if getattr(trainer, _MARK, False):
        return ()
    setattr(trainer, _MARK, True)
    return (_patch_symbolic_build(trainer), _patch_reduction(trainer))


def has_several_workers(strategy: Any) -> bool:
    """Return whether `strategy` is MultiWorkerMirroredStrategy with more than one worker."""
    import tensorflow as tf

    mirrored = tf.distribute.MultiWorkerMirroredStrategy
    return isinstance(strategy, mirrored) and strategy.extended._in_multi_worker_mode()


def _patch_symbolic_build(trainer: Any) -> str:
    theirs = trainer.TensorFlowTrainer._maybe_symbolic_build

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        strategy = self._distribute_strategy
        if iterator is None or not has_several_workers(strategy):
            return theirs(self, iterator=iterator, data_batch=data_batch)
        for _, _, batches in iterator:
            data_batch = trainer.tree.map_structure(
                lambda part: strategy.experimental_local_results(part)[0], next(batches)
            )
            break
        with strategy.scope():
            self._symbolic_build(data_batch=data_batch)

    trainer.TensorFlowTrainer._maybe_symbolic_build = _maybe_symbolic_build
    return "TensorFlowTrainer._maybe_symbolic_build: shapes from the first local replica's batch"


def _patch_reduction(trainer: Any) -> str:
    theirs = trainer.reduce_per_replica

    def reduce_per_replica(values, strategy, reduction):
        how = {"auto": "MEAN", "mean": "MEAN", "sum": "SUM"}.get(reduction)
        if how is None or not has_several_workers(strategy):
            return theirs(values, strategy, reduction)

        def reduce(value: Any) -> Any:
            scalar = strategy.experimental_local_results(value)[0].shape.rank == 0
            return strategy.reduce(how, value, axis=None if scalar else 0)

        return trainer.tree.map_structure(reduce, values)

    trainer.reduce_per_replica = reduce_per_replica
    return "reduce_per_replica: scalars are reduced over replicas alone (axis=None)"
