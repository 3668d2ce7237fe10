"""Let iterators over several devices begin and end at once, in the TensorFlow versions tried.

`Strategy.experimental_distribute_dataset`, and `fit` with it, make an iterator over several
devices: one iterator on each device asks the host's for its batches. `fit` makes two in an
epoch, and three more where it validates (counted with Keras 3).
"""

from __future__ import annotations

import copy
import functools
from typing import Any

VERSIONS = ("2.21.0",)  # of TensorFlow: tried, and as described below


def quicken_device_iterators() -> None:
    """Reuse the functions of iterators over several devices, and leave their buffers untuned.

    For every such iterator, and each of its devices, TensorFlow 2.21 traces six functions that
    differ in the iterator they ask. They are traced once here, for a device and a kind of batch:
    an iterator over two logical devices takes half the processor time. And it gives each
    device's buffer of one batch a tuning thread, whatever the data set's own options say. It has
    nothing to tune, and who drops the iterator may wait until it wakes: as long as the iterator
    lived, up to a minute. A second call changes nothing; other versions than `VERSIONS` are left
    alone.
    """
    import tensorflow as tf

    if tf.__version__ not in VERSIONS:
        return
    from tensorflow.python.data.ops import multi_device_iterator_ops as module

    if hasattr(module._create_device_dataset, "__wrapped__"):
        return
    _reuse_functions(module)
    _leave_buffers_untuned(module)


def _leave_buffers_untuned(module: Any) -> None:
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    theirs = module._create_device_dataset

    @functools.wraps(theirs)
    def create_device_dataset(*args: Any, **keywords: Any) -> tf.data.Dataset:
        return theirs(*args, **keywords).with_options(options)

    module._create_device_dataset = create_device_dataset


def _reuse_functions(module: Any) -> None:
    """Make a device's data set of one that was traced before, for an iterator without data.

    The traced one holds on to no data, and its functions take what differs as arguments.
    """
    import tensorflow as tf
    from tensorflow.python.eager import context
    from tensorflow.python.ops import gen_dataset_ops

    generator = module._PerDeviceGenerator
    theirs, traced = generator.__init__, dict[Any, Any]()

    @functools.wraps(theirs)
    def init(
        self: Any, shard: int, iterator: Any, run: Any, source: Any, spec: Any, **keywords: bool
    ) -> None:
        if not (keywords == {"iterator_is_anonymous": True} and tf.executing_eagerly()):
            return theirs(self, shard, iterator, run, source, spec, **keywords)
        device = context.context().device_name  # of the scope that this is called in
        key = shard, device, source.numpy(), repr(spec)
        if key not in traced:
            empty, zero = _make_empty(device, source, spec), tf.constant(0, tf.int64)
            traced[key] = generator.__new__(generator)
            theirs(traced[key], shard, empty, zero, source, spec, **keywords)
        handle = gen_dataset_ops.multi_device_iterator_to_string_handle(iterator)
        self.__dict__.update(traced[key].__dict__, _element_spec=spec)
        self._init_func = copy.copy(self._init_func)
        self._init_func.set_external_captures([source, handle])
        self._next_captured_args = [source, run, iterator]

    generator.__init__ = init


def _make_empty(device: str, source: Any, spec: Any) -> Any:
    """Return an iterator's resource that no data set was given."""
    import tensorflow as tf
    from tensorflow.python.data.util import structure
    from tensorflow.python.ops import gen_dataset_ops

    with tf.device(source.numpy().decode()):
        return gen_dataset_ops.anonymous_multi_device_iterator_v3(
            devices=[device],
            output_types=structure.get_flat_tensor_types(spec),
            output_shapes=structure.get_flat_tensor_shapes(spec),
        )
