"""Name -> `tf.distribute.Strategy`, and the table of what works with which Keras.

TensorFlow is imported only when a strategy is made, so that the names and the
table can be read at once. `tests/test_strategies.py` runs every row of the table
that the machine can run.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING

from utils.errors import CourseError

if TYPE_CHECKING:
    import tensorflow as tf

SINGLE_MACHINE = ("default", "one-device", "mirrored", "central-storage")
COMING = {
    "multi-worker": "the cluster work (lessons 08 to 10)",
    "parameter-server": "the cluster work (lesson 11)",
    "tpu": "its lesson 14",
}
NAMES = SINGLE_MACHINE + tuple(COMING)
MANY_REPLICAS = ("mirrored", "central-storage")
MOST_REPLICAS = 16  # on logical devices, tracing more takes minutes


def check_strategy(name: str, replicas: int | None = None) -> int:
    """Return the number of replicas that strategy `name` gets, after checking both.

    None means the usual number: 2 for the strategies that have several, else 1.
    Raises CourseError for a name that does not exist or cannot run yet, and for a
    number of replicas that the strategy cannot have.
    """
    if name in COMING:
        allowed = ", ".join(SINGLE_MACHINE)
        raise CourseError(
            f"strategy {name!r} comes with {COMING[name]}; this version has {allowed}"
        )
    if name not in SINGLE_MACHINE:
        raise CourseError(f"strategy {name!r}: choose from {', '.join(SINGLE_MACHINE)}")
    if replicas is None:
        return 2 if name in MANY_REPLICAS else 1
    most = MOST_REPLICAS if name in MANY_REPLICAS else 1
    if not isinstance(replicas, Integral) or not 1 <= replicas <= most:
        allowed = f"1 to {most}" if most > 1 else "1, since it trains on one device"
        raise CourseError(f"{replicas} replicas: strategy {name!r} takes {allowed}")
    return int(replicas)


def make_strategy(name: str, replicas: int | None = None) -> tf.distribute.Strategy:
    """Return the single-machine strategy `name` with `replicas` replicas.

    Replicas are GPUs where there are enough, else logical CPU devices. On CPU
    devices MirroredStrategy reduces with `ReductionToOneDevice`: with its default
    collectives, a second strategy with another number of replicas fails in the
    same process.

    Raises CourseError as `check_strategy` does, and when TensorFlow started
    before the process was split into enough devices.
    """
    replicas = check_strategy(name, replicas)
    import tensorflow as tf

    from utils.devices import training_devices

    if name == "default":
        return tf.distribute.get_strategy()
    devices = training_devices(replicas)
    if name == "one-device":
        return tf.distribute.OneDeviceStrategy(devices[0])
    if name == "mirrored":
        on_cpu = devices[0].startswith("CPU")
        reduce_how = tf.distribute.ReductionToOneDevice() if on_cpu else None
        return tf.distribute.MirroredStrategy(devices, cross_device_ops=reduce_how)
    host = "CPU:0"
    return tf.distribute.experimental.CentralStorageStrategy(devices, parameter_device=host)


@dataclass(frozen=True)
class Support:
    """One row of the table: does this strategy, with this loop and this Keras, train?

    `works` is True or False as measured, None where it depends on hardware that
    the measuring machine lacked. `error` is a part of the message that a failing
    row ends with, `note` what to do.
    """

    strategy: str
    loop: str  # "fit" | "custom"
    keras: str  # "keras 3" | "tf_keras"
    works: bool | None
    error: str = ""
    note: str = ""


def _rows() -> tuple[Support, ...]:
    both_loops = [(loop, kind) for kind in ("keras 3", "tf_keras") for loop in ("fit", "custom")]
    rows = [Support(name, *cell, works=True) for name in SINGLE_MACHINE for cell in both_loops]
    rows += [
        Support("multi-worker", *cell, works=True) for cell in both_loops if cell[1] == "tf_keras"
    ]
    rows += [
        Support("multi-worker", "custom", "keras 3", works=True),
        Support(
            "multi-worker",
            "fit",
            "keras 3",
            works=False,
            error="PerReplica",
            note="use the custom loop, or mend Keras's trainer (lesson 09)",
        ),
        Support(
            "parameter-server",
            "fit",
            "keras 3",
            works=False,
            error="create_per_worker_dataset",
            note="use the custom loop through ClusterCoordinator (lesson 11)",
        ),
        Support(
            "parameter-server",
            "custom",
            "keras 3",
            works=True,
            note="optimizer.iterations loses counts (lesson 11)",
        ),
        Support("parameter-server", "fit", "tf_keras", works=True, note="with DatasetCreator"),
        Support("parameter-server", "custom", "tf_keras", works=True),
    ]
    wants_tpu = "needs TPU hardware; the same program runs there unchanged (lesson 14)"
    rows += [Support("tpu", *cell, works=None, note=wants_tpu) for cell in both_loops]
    return tuple(rows)


SUPPORT: tuple[Support, ...] = (
    _rows()
)  # measured on TensorFlow 2.21.0, Keras 3.15.1, tf_keras 2.21.0


def format_support() -> str:
    """Return the table as text: a line per strategy, a column per loop and Keras."""
    columns = [
        ("fit", "keras 3"),
        ("custom", "keras 3"),
        ("fit", "tf_keras"),
        ("custom", "tf_keras"),
    ]
    words = {True: "works", False: "fails", None: "needs a TPU"}
    lines = [f"{'strategy':<18}" + "".join(f"{kind + ' ' + loop:<18}" for loop, kind in columns)]
    for name in NAMES:
        cells = {(s.loop, s.keras): words[s.works] for s in SUPPORT if s.strategy == name}
        lines.append(f"{name:<18}" + "".join(f"{cells[column]:<18}" for column in columns))
    return "\n".join(line.rstrip() for line in lines)
