"""Pictures: every function takes plain records and returns an accessible `Picture`.

from utils import figures

    figures.show(figures.lines({"loss": (epochs, losses)}, x_label="epoch", ...))

Matplotlib is imported when the first picture is drawn, not here. It is used
through its own objects inside a context, so the reader's matplotlib settings
stay as they are.
"""

from utils.figures.amdahl import amdahl, amdahl_speed_up
from utils.figures.arrays import images, matrix
from utils.figures.bars import bars, grouped_bars
from utils.figures.batches import batch_split, split_evenly
from utils.figures.devices import (
    central_storage_devices,
    mirrored_devices,
    one_device,
    parameter_server_devices,
)
from utils.figures.diagram import Arrow, Box, diagram
from utils.figures.lanes import LaneRecord, job_lanes
from utils.figures.lines import lines
from utils.figures.picture import Picture, show
from utils.figures.prediction import draw_prediction
from utils.figures.ring import ring_moment
from utils.figures.shares import shares
from utils.figures.split_matrix import split_matrix
from utils.figures.timeline import timeline

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
