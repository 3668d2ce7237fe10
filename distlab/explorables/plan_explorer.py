"""The planning explorer: devices, network, batch, failures in; efficiency, time, money out."""

from dataclasses import replace
from functools import cache

from distlab.explorables.controls import Choice, Slider
from distlab.explorables.explorer import Explorer, explore
from distlab.figures import Picture, lines
from distlab.figures.canvas import say_number
from utils.calibrate import Prediction, Profile, Scenario, find_machine, predict
from utils.simulate.machines import USUAL_MFU

NETWORKS = ("10GbE", "25GbE", "100GbE", "HDR", "NDR")
LARGEST = 14  # devices as a power of two


def plan_explorer(
    profile: Profile, *, examples: int, epochs: float, mfu: float = USUAL_MFU
) -> Explorer:
    """Show what a run of `profile` on H100s comes to, for the sizes and the network chosen.

    The profile has to know its FLOPs per example. The line is efficiency over all sizes; the
    words below it are of the chosen one.
    """

    def show(size: int, network: str, batch: int, mtbf_days: int, price: float) -> Picture:
        rows = predict_all(network, batch, mtbf_days, price)
        return draw(rows, rows[size])

    @cache
    def predict_all(network: str, batch: int, mtbf_days: int, price: float) -> list[Prediction]:
        own = replace(profile, batch=batch)
        machine = find_machine(f"H100 on {network}")
        sizes = tuple(2**power for power in range(LARGEST + 1))
        scenario = Scenario(
            sizes,
            examples=examples,
            epochs=epochs,
            machine=machine,
            price=price,
            mfu=mfu,
            node_mtbf_hours=24.0 * mtbf_days,
        )
        return predict(own, scenario)

    return explore(
        show,
        size=Slider("Devices", 0, LARGEST, 6, grid=range(0, LARGEST + 1, 2), base=2),
        network=Choice("Network between nodes of eight", list(NETWORKS), "100GbE"),
        batch=Slider("Batch of a device", 8, 512, profile.batch, 8, "examples", (8, 64, 512)),
        mtbf_days=Slider("A node fails every", 1, 1000, 200, 1, "days", (10, 50, 200)),
        price=Slider("Price of a device-hour, in your currency", 0, 10, 2.5, 0.5, grid=(1, 2.5, 5)),
    )


def draw(rows: list[Prediction], chosen: Prediction) -> Picture:
    """Return efficiency over the sizes; the chosen one marked, and said in words below."""
    percent = [100 * row.efficiency * row.effective_time if row.fits else 0.0 for row in rows]
    picture = lines(
        {"efficiency": ([row.devices for row in rows], percent)},
        x_label="devices",
        y_label="% of one device's throughput",
        log_x=True,
        title="What is left of each device",
        marks={"chosen": (chosen.devices, percent[rows.index(chosen)])},
    )
    return replace(picture, caption=say_plan(chosen))


def say_plan(row: Prediction) -> str:
    """Return efficiency, time, money and bottleneck of one size in words."""
    if not row.fits:
        return f"{row.devices:,} devices: it {row.advice}"
    return (
        f"{row.devices:,} devices: {100 * row.efficiency * row.effective_time:.0f} % efficiency, "
        f"{say_number(row.hours)} hours, {say_number(row.cost)} to pay. "
        f"The bottleneck is {row.bottleneck}."
    )
