"""TensorFlow's iterators over several devices, made in half the time: their functions are reused.

Each epoch under MirroredStrategy makes such an iterator, and TensorFlow 2.21 traces six functions
for each of its devices: most of what a short `fit` takes. They differ only in tensors, which are
their arguments here. What an iterator gives is the same (`test_warm_start.py` compares). With
DISTLAB_COLD_START set, TensorFlow's own are used.
"""

import functools
from types import ModuleType
from typing import Any

VERSION = "2.21.0"  # of TensorFlow: the one whose iterators these are


def install(tf: ModuleType) -> None:
    """Let this process's iterators reuse functions; other versions of TensorFlow are left alone."""
    if tf.__version__ != VERSION:
        return
    from tensorflow.python.data.ops import dataset_ops, multi_device_iterator_ops
    from tensorflow.python.ops import gen_dataset_ops

    theirs = multi_device_iterator_ops._PerDeviceGenerator.__init__
    theirs_again = multi_device_iterator_ops._ReincarnatedPerDeviceGenerator.__init__
    made: dict[tuple[Any, ...], tuple[Any, Any, Any]] = {}

    @functools.wraps(theirs)
    def make(
        self: Any,
        shard: int,
        resource: Any,
        incarnation: Any,
        source: Any,
        spec: Any,
        iterator_is_anonymous: bool,
    ) -> None:
        self.is_final = iterator_is_anonymous and tf.executing_eagerly()
        if not self.is_final:
            theirs(self, shard, resource, incarnation, source, spec, iterator_is_anonymous)
            return
        key = (shard, repr(spec), tf.zeros(()).device, source.numpy())
        if key not in made:
            made[key] = trace_functions(tf, shard, source, spec)
        begin, step, end = made[key]
        handle = gen_dataset_ops.multi_device_iterator_to_string_handle(resource)
        self._element_spec, self._name = spec, f"device_generator_{shard}"
        variant = gen_dataset_ops.generator_dataset(
            [handle, *begin.captured_inputs],
            [incarnation, *step.captured_inputs, resource],  # the last one lives as long
            end.captured_inputs,
            begin,
            step,
            end,
            **self._flat_structure,
        )
        dataset_ops.DatasetV2.__init__(self, variant)

    def make_again(self: Any, dataset: Any, incarnation: Any) -> None:
        if not getattr(dataset, "is_final", False):
            theirs_again(self, dataset, incarnation)
            return
        self._element_spec, self._name = dataset.element_spec, dataset._name
        dataset_ops.DatasetV2.__init__(self, dataset._variant_tensor)

    multi_device_iterator_ops._PerDeviceGenerator.__init__ = make
    multi_device_iterator_ops._ReincarnatedPerDeviceGenerator.__init__ = make_again


def trace_functions(tf: ModuleType, shard: int, source: Any, spec: Any) -> tuple[Any, Any, Any]:
    """Return what begins, steps and ends a device's generator, as `_PerDeviceGenerator` has it."""
    from tensorflow.python.data.util import structure
    from tensorflow.python.framework import type_utils
    from tensorflow.python.ops import functional_ops, gen_dataset_ops

    types = structure.get_flat_tensor_types(spec)
    shapes = structure.get_flat_tensor_shapes(spec)
    full = type_utils.fulltype_list_to_product(type_utils.fulltypes_for_flat_tensors(spec))
    string, number = tf.TensorSpec([], tf.string), tf.TensorSpec([], tf.int64)

    def trace(function: Any, signature: list[Any], given: Any, **options: Any) -> Any:
        there = tf.function(function, signature, autograph=False).get_concrete_function()

        def call(*arguments: Any) -> Any:
            values = functional_ops.remote_call(source, list(arguments), given, there)
            for value in values if given is types else []:
                value.op.experimental_set_type(full)
            return values

        return tf.function(call, signature, autograph=False, **options).get_concrete_function()

    def step(handle: Any, incarnation: Any) -> Any:
        iterator = gen_dataset_ops.multi_device_iterator_from_string_handle(handle, types, shapes)
        return gen_dataset_ops.multi_device_iterator_get_next_from_shard(
            iterator, shard, incarnation, types, shapes
        )

    on_device = {"experimental_ints_on_device": True}
    return (
        trace(tf.identity, [string], [tf.string]),
        trace(step, [string, number], types, experimental_attributes=on_device),
        trace(lambda handle: tf.constant(0, tf.int64), [string], [tf.int64]),
    )
