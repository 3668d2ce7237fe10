"""The Amdahl explorer: how the part that does not spread limits the speed-up."""

from collections.abc import Mapping
from dataclasses import replace

from distlab.figures import Picture, amdahl, amdahl_speed_up
from distlab.figures.canvas import say_number
from distlab.widgets.controls import Slider
from distlab.widgets.explorer import Explorer, explore


def amdahl_explorer(
    parallel_fraction: float = 0.9,
    measured: Mapping[float, float] | None = None,
    most_devices: int = 64,
) -> Explorer:
    """Show Amdahl's curve for a chosen parallel fraction and number of devices.

    `measured` maps a number of devices to a measured speed-up over one device;
    its points stay in the picture.
    """

    def show_curve(parallel_percent: float, most_devices: int) -> Picture:
        return show_speed_up(parallel_percent / 100, most_devices, measured)

    return explore(
        show_curve,
        parallel_percent=Slider(
            "Work that spreads", 0, 100, round(parallel_fraction * 100, 1), 0.5, "%"
        ),
        most_devices=Slider("Devices", 2, 256, most_devices),
    )


def show_speed_up(
    parallel_fraction: float, devices: int, measured: Mapping[float, float] | None = None
) -> Picture:
    """Return Amdahl's picture with what it means for `devices` devices as its caption."""
    speed_up = amdahl_speed_up(parallel_fraction, devices)
    words = (
        f"{devices} devices give a speed-up of {say_number(speed_up)}: each of them is used for "
        f"{say_number(100 * speed_up / devices)} % of the time. "
    )
    if parallel_fraction < 1:
        alone = say_number(100 * (1 - parallel_fraction))
        words += (
            f"The {alone} % that does not spread takes as long on any number of devices, so no "
            f"number gives more than {say_number(1 / (1 - parallel_fraction))}."
        )
    return replace(amdahl(parallel_fraction, devices, measured), caption=words)
