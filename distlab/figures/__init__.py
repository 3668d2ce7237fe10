"""Pictures: every function takes plain records and returns an accessible `Picture`.

from distlab import figures

    figures.show(figures.lines({"loss": (epochs, losses)}, x_label="epoch", ...))

Matplotlib is imported when the first picture is drawn, not here. It is used
through its own objects inside a context, so the reader's matplotlib settings
stay as they are.
"""

from distlab.figures.amdahl import amdahl, amdahl_speed_up
from distlab.figures.arrays import images, matrix
from distlab.figures.bars import bars, grouped_bars
from distlab.figures.batches import batch_split, split_evenly
from distlab.figures.devices import (
    central_storage_devices,
    mirrored_devices,
    one_device,
    parameter_server_devices,
)
from distlab.figures.diagram import Arrow, Box, diagram
from distlab.figures.lanes import LaneRecord, job_lanes
from distlab.figures.lines import lines
from distlab.figures.picture import Picture, show
from distlab.figures.prediction import draw_prediction
from distlab.figures.ring import ring_moment
from distlab.figures.shares import shares
from distlab.figures.split_matrix import split_matrix
from distlab.figures.timeline import timeline

__all__ = [
    "Arrow",
    "Box",
    "LaneRecord",
    "Picture",
    "amdahl",
    "amdahl_speed_up",
    "bars",
    "batch_split",
    "central_storage_devices",
    "diagram",
    "draw_prediction",
    "grouped_bars",
    "images",
    "job_lanes",
    "lines",
    "matrix",
    "mirrored_devices",
    "one_device",
    "parameter_server_devices",
    "ring_moment",
    "shares",
    "show",
    "split_evenly",
    "split_matrix",
    "timeline",
]
