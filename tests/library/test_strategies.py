"""The table of what works, run row by row, and the strategies by name."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from utils.cluster import LocalCluster
from utils.strategies import (
    NAMES,
    SINGLE_MACHINE,
    STRATEGIES,
    SUPPORT,
    StrategyRecord,
    list_names,
    make_strategy,
)
from utils.tf_config.rules import TAKES_SERVERS

PROBE = Path(__file__).parents[1] / "strategy_probe.py"


@pytest.fixture(scope="module")
def measured():
    if sys.platform != "linux":
        pytest.skip("the probe forks after importing TensorFlow, which is safe on Linux only")
    done = subprocess.run([sys.executable, str(PROBE)], capture_output=True, text=True, timeout=550)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode == 0, done.stderr[-2000:]
    return {(row["strategy"], row["loop"], row["keras"]): row for row in rows}


RUNNABLE = [row for row in SUPPORT if row.works is not None]


@pytest.mark.parametrize("row", RUNNABLE, ids=lambda r: f"{r.strategy}-{r.loop}-{r.keras}")
def test_every_row_is_as_the_table_says(measured, row):
    got = measured[row.strategy, row.loop, row.keras]
    assert got["works"] == row.works, got["error"][-1500:]
    assert row.error in got["error"]
    assert row.works or row.error, "a row that fails names its error"


def test_the_table_has_every_cell_once():
    cells = [(row.strategy, row.loop, row.keras) for row in SUPPORT]
    assert len(cells) == len(set(cells)) == len(NAMES) * 2 * 2
    assert [row.strategy for row in SUPPORT if row.works is None] == ["tpu"] * 4


def test_strategies_one_after_the_other_in_one_process(tf):
    """With default collectives the second number of replicas would fail."""
    for name, replicas in [
        ("mirrored", 2),
        ("mirrored", 4),
        ("central-storage", 3),
        ("mirrored", 1),
        ("one-device", 1),
        ("mirrored", 3),
    ]:
        strategy = make_strategy(name, replicas)
        assert strategy.num_replicas_in_sync == replicas

        def give():
            context = tf.distribute.get_replica_context()
            return context.all_reduce("sum", tf.constant(1.0))

        total = strategy.experimental_local_results(tf.function(strategy.run)(give))
        assert [float(t) for t in total] == [float(replicas)] * replicas


def describe(name):
    """Make strategy `name`; return whether its type is what its record says, and which it is."""
    import operator

    import tensorflow as tf

    from utils.strategies import STRATEGIES, make_strategy

    strategy = make_strategy(name)
    wanted = operator.attrgetter(STRATEGIES[name].type_name)(tf.distribute)
    return isinstance(strategy, wanted), type(strategy).__name__


@pytest.mark.parametrize("name", SINGLE_MACHINE)
def test_each_record_makes_the_type_that_it_says(tf, name):
    is_so, made = describe(name)
    assert is_so, made
    plain = type(tf.distribute.get_strategy()).__name__
    assert (made == plain) == (name == "default"), "every strategy is a Strategy"


@pytest.mark.parametrize("name, ps", [("multi-worker", 0), ("parameter-server", 1)])
def test_each_record_of_a_cluster_makes_the_type_that_it_says(name, ps):
    assert STRATEGIES[name].is_coordinated == bool(ps)
    assert TAKES_SERVERS[name] == bool(ps)  # tf_config stands below the records
    with LocalCluster(workers=1, ps=ps) as cluster:
        got = cluster.run(describe, name, timeout=280, echo=False)
    is_so, made = got if ps else got[0]
    assert is_so, made


def test_a_name_without_a_maker_cannot_exist():
    with pytest.raises(TypeError, match="make"):
        StrategyRecord("hierarchical")
    assert set(NAMES) == set(STRATEGIES) == {r.name for r in STRATEGIES.values()}
    assert sum((list_names(place) for place in ("machine", "cluster", "TPU")), ()) == NAMES
    assert {record.place for record in STRATEGIES.values()} == {"machine", "cluster", "TPU"}


def test_usual_numbers_of_replicas(tf):
    counts = {name: make_strategy(name).num_replicas_in_sync for name in SINGLE_MACHINE}
    expected = {"default": 1, "one-device": 1, "mirrored": 2, "central-storage": 2}
    assert counts == expected, "a new strategy of one machine: add its usual number to `expected`"


def test_devices_can_be_asked_for_twice(tf):
    from utils.devices import find_devices, name_devices, use_logical_devices

    assert use_logical_devices(4) == ["CPU:0", "CPU:1", "CPU:2", "CPU:3"]
    assert use_logical_devices(2) == name_devices(*find_devices("auto", 2)) == ["CPU:0", "CPU:1"]


def test_the_buffer_of_a_device_has_no_tuning_thread(tf):
    """Who drops an iterator would wait until the thread wakes (TensorFlow 2.21)."""
    from utils.devices import use_logical_devices

    strategy = tf.distribute.MirroredStrategy(use_logical_devices(2))
    batches = strategy.experimental_distribute_dataset(tf.data.Dataset.range(8).batch(4))
    worker = iter(batches)._iterators[0]._iterator
    buffers = [iterator._dataset for iterator in worker._device_iterators]
    assert [buffer.options().autotune.enabled for buffer in buffers] == [False, False]
