"""Mirrored or central storage: bytes held by each device, and bytes sent in each step.

The byte counts follow what TensorFlow 2.21 does, as lesson 07 counts it on the
graph of a training step with a Keras 3 optimizer. All gradients and values of
one step are of the size of the trainable variables; the optimizer's step
counter and the metrics, a few bytes each, are left out.
"""

from collections.abc import Mapping
from dataclasses import replace

from distlab.explorables.controls import Choice, Slider
from distlab.explorables.explorer import Explorer, explore
from distlab.figures import Picture, bars, grouped_bars
from distlab.figures.canvas import say_number
from utils.checks import check_choice, check_count
from utils.measure import format_bytes

SLOTS: Mapping[str, int] = {"SGD": 0, "SGD with momentum": 1, "Adam": 2}
FLOAT32_BYTES = 4


def storage_explorer(
    replicas: int = 4, million_parameters: int = 100, optimizer: str = "Adam"
) -> Explorer:
    """Show what mirroring and central storage hold and send, for the chosen model and replicas."""
    return explore(
        show_storage,
        replicas=Slider("Replicas", 2, 16, replicas),
        million_parameters=Slider(
            "Parameters", 1, 2000, million_parameters, unit="million, float32"
        ),
        optimizer=Choice("Optimizer", list(SLOTS), optimizer),
    )


def held_bytes(strategy: str, variable_bytes: int, slots: int) -> dict[str, int]:
    """Return the bytes held between two steps on the host and on each accelerator.

    `variable_bytes` is the size of the trainable variables, `slots` the number
    of values that the optimizer keeps for each weight. Variables and slots live
    on every accelerator under "mirrored", once on the host under
    "central-storage". Raises InputError for another strategy.
    """
    _check(strategy)
    everything = variable_bytes * (1 + slots)
    on_host = strategy == "central-storage"
    return {
        "host": everything if on_host else 0,
        "each accelerator": 0 if on_host else everything,
    }


def sent_bytes(strategy: str, variable_bytes: int, replicas: int) -> int:
    """Return the bytes that cross between devices in one step, over all links and directions.

    "mirrored" with `ReductionToOneDevice`: the gradients of all replicas but the
    first to the first, and the sum back to each. "central-storage": the values
    to every replica, its gradients back, and, with a Keras 3 optimizer, the sum
    to the first replica and back once more. The host isn't one of the replicas.
    Raises InputError for another strategy or fewer than 2 replicas.
    """
    _check(strategy)
    check_count("replicas", replicas, 2)
    crossings = replicas + 1 if strategy == "central-storage" else replicas - 1
    return 2 * crossings * variable_bytes


def busiest_link_bytes(variable_bytes: int, replicas: int) -> dict[str, float]:
    """Return, for each way to share, the most bytes that one device sends in a step.

    A ring all-reduce sends 2 (R - 1) / R of the gradients from each of R replicas
    (Patarasu and Yuan, "Bandwidth optimal all-reduce algorithms", 2009).
    """
    return {
        "central storage: the host": sent_bytes("central-storage", variable_bytes, replicas) / 2,
        "mirrored, one device: replica 0": sent_bytes("mirrored", variable_bytes, replicas) / 2,
        "mirrored, ring: each replica": 2 * (replicas - 1) / replicas * variable_bytes,
    }


def show_storage(replicas: int, million_parameters: float, optimizer: str) -> list[Picture]:
    """Return two pictures, memory and bytes sent; below the second stands a sentence."""
    variable_bytes = int(million_parameters * 1e6) * FLOAT32_BYTES
    held = _draw_held(variable_bytes, SLOTS[optimizer])
    sent = _draw_sent(variable_bytes, replicas)
    words = explain_storage(variable_bytes, replicas, optimizer)
    return [held, replace(sent, caption=words)]


def explain_storage(variable_bytes: int, replicas: int, optimizer: str) -> str:
    """Return in words what central storage saves in memory and costs in bytes sent."""
    slots = SLOTS[optimizer]
    saved = held_bytes("mirrored", variable_bytes, slots)["each accelerator"]
    central, one_device, ring = busiest_link_bytes(variable_bytes, replicas).values()
    return (
        f"Central storage frees {format_bytes(saved)} on each of {replicas} accelerators between "
        f"steps; during a step the values that a replica was sent, {format_bytes(variable_bytes)}, "
        f"are there as well. The host sends {say_number(central / ring)} times what a replica "
        f"sends in a ring, and {say_number(central / one_device)} times what replica 0 sends when "
        "it reduces for all."
    )


def _draw_held(variable_bytes: int, slots: int) -> Picture:
    names = {"mirrored": "Mirrored", "central-storage": "Central storage"}
    groups = {
        title: {
            place: count / 2**20
            for place, count in held_bytes(strategy, variable_bytes, slots).items()
        }
        for strategy, title in names.items()
    }
    picture = grouped_bars(groups, unit="MiB", title="Variables and optimizer slots, between steps")
    return picture.with_ideas(dict.fromkeys(groups["Mirrored"], "variables"))


def _draw_sent(variable_bytes: int, replicas: int) -> Picture:
    links = busiest_link_bytes(variable_bytes, replicas)
    return bars(
        {name: count / 2**20 for name, count in links.items()},
        unit="MiB",
        title=f"Most that one device sends in a step, {replicas} replicas",
    ).with_ideas(dict.fromkeys(links, "all-reduce"))


def _check(strategy: str) -> None:
    check_choice("strategy", strategy, ("mirrored", "central-storage"))
