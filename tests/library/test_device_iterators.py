"""Iterators over several devices, whose functions are traced once for all of them."""

import gc

import numpy as np
import pytest

KINDS = {
    "a pair": lambda tf, x: (x, x > 3),
    "a dictionary": lambda tf, x: {"a": x, "b": (x, tf.cast(x, tf.int32))},
    "ragged": lambda tf, x: tf.RaggedTensor.from_row_lengths(x, tf.ones_like(x, tf.int64)),
}


@pytest.fixture(scope="module", params=[2, 3])
def strategy(request, tf):
    from utils.devices import use_logical_devices

    return tf.distribute.MirroredStrategy(use_logical_devices(4)[: request.param])


def distribute(strategy, kind="a pair", numbers=range(14)):
    import tensorflow as tf

    data = tf.data.Dataset.from_tensor_slices(np.array(numbers, "float32"))
    return strategy.experimental_distribute_dataset(data.batch(6).map(lambda x: KINDS[kind](tf, x)))


def list_functions() -> set[str]:
    """Return the functions that TensorFlow knows in this process."""
    from tensorflow.python.eager.context import context

    return set(context().list_function_names())


def read(strategy, batch) -> list[list[float]]:
    """Return what a batch's first tensor holds on each replica."""
    import tensorflow as tf

    parts = strategy.experimental_local_results(batch)
    return [tf.nest.flatten(one, expand_composites=True)[0].numpy().tolist() for one in parts]


@pytest.mark.parametrize("kind", KINDS)
def test_each_iterator_gives_all_examples_in_order(strategy, kind):
    batches = distribute(strategy, kind)
    other = distribute(strategy, kind, range(100, 114))
    for _ in range(3):
        assert sum((sum(read(strategy, one), []) for one in batches), []) == list(range(14))
        assert sum((sum(read(strategy, one), []) for one in other), []) == list(range(100, 114))


def test_two_iterators_at_once_go_their_own_ways(strategy):
    batches = distribute(strategy)
    first, second = iter(batches), iter(batches)
    begun = [read(strategy, next(first)), read(strategy, next(first))]
    assert read(strategy, next(second)) == begun[0] != begun[1]
    del first
    assert read(strategy, next(second)) == begun[1]


def test_a_second_iterator_traces_nothing(strategy):
    first, second = distribute(strategy), distribute(strategy)  # they cut batches, and trace
    list(first)
    known = list_functions()
    list(second), list(first)
    assert list_functions() == known


def test_a_dropped_iterator_lets_its_data_go(tf, strategy):
    ended = []

    def count():
        try:
            yield from range(100)
        finally:
            ended.append(True)

    data = tf.data.Dataset.from_generator(count, output_signature=tf.TensorSpec([], tf.int64))
    batches = strategy.experimental_distribute_dataset(data.batch(6))
    for expected in (1, 2):
        iterator = iter(batches)
        next(iterator)
        del iterator
        gc.collect()
        assert len(ended) == expected
