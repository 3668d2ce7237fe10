"""Pictures that say what they show: every function takes plain records and returns a `Picture`.

    from distlab import figures

    figures.show(figures.lines({"loss": (epochs, losses)}, x_label="epoch", ...))
    figures.show(plt.gcf(), alt="Loss falls from 2.3 to 0.4 in ten epochs.")  # a plot of your own

Matplotlib is imported when the first picture is drawn, not here. It is used
through its own objects inside a context, so the reader's matplotlib settings
stay as they are.
"""

from distlab.figures.bars import bars, grouped_bars
from distlab.figures.batches import batch_split, split_evenly
from distlab.figures.canvas import from_figure, show
from distlab.figures.devices import (
    central_storage_devices,
    mirrored_devices,
    one_device,
    parameter_server_devices,
)
from distlab.figures.diagram import Arrow, Box, diagram
from distlab.figures.grids import images, matrix, shares
from distlab.figures.lanes import LaneRecord, job_lanes
from distlab.figures.lines import lines
from distlab.figures.picture import Picture
from distlab.figures.timeline import timeline

__all__ = [
    "Arrow",
    "Box",
    "LaneRecord",
    "Picture",
    "bars",
    "batch_split",
    "central_storage_devices",
    "diagram",
    "from_figure",
    "grouped_bars",
    "images",
    "job_lanes",
    "lines",
    "matrix",
    "mirrored_devices",
    "one_device",
    "parameter_server_devices",
    "shares",
    "show",
    "split_evenly",
    "timeline",
]
