"""One color for one idea through the whole course, in pictures and in explorables.

The light values are Okabe and Ito's colors (jfly.uni-koeln.de/color) where they have one;
on a dark page the same hue is brighter. `ink` is what is written on a fill.
"""

from collections.abc import Mapping
from typing import NamedTuple

BLUE, VERMILION, GREEN = "#0072B2", "#D55E00", "#009E73"
PURPLE, ORANGE, SKY = "#CC79A7", "#E69F00", "#56B4E9"
WHITE, BLACK = "#FFFFFF", "#111111"


class Shade(NamedTuple):
    """A color on a light page and on a dark one, and the ink to write on the light one.

    On the dark one it is always BLACK.
    """

    light: str
    dark: str
    ink: str = BLACK


IDEAS: Mapping[str, Shade] = {
    "forward": Shade(BLUE, "#3DA9F5", WHITE),  # and activations, which it makes
    "backward": Shade(VERMILION, "#FF8A3C"),  # and gradients
    "weight-gradient": Shade("#F2B48A", "#D08050"),  # the backward pass for weights alone
    "all-reduce": Shade(GREEN, "#1FCB9A"),  # and everything else on the wires
    "variables": Shade(PURPLE, "#F08CC0"),
    "optimizer": Shade("#6F4FC9", "#A58BFA", WHITE),
    "data": Shade(ORANGE, "#FFC145"),
    "wait": Shade("#6B7280", "#9AA3B2", WHITE),
    "over": Shade("#D11A3A", "#FF5C6E", WHITE),  # over a limit, lost, killed
}

# One for each replica or rank, the same on light and dark pages; BLACK reads on all of them.
REPLICAS = (
    "#4BA3F7",
    "#E48233",
    "#4CB86A",
    "#E274AB",
    "#00B9C3",
    "#B59F00",
    "#AD87ED",
    "#ED756E",
)
REPLICA_IDEAS = tuple(f"replica-{k}" for k in range(len(REPLICAS)))
