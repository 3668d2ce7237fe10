"""tf.data pipelines from naive to tuned: shards, stages, measuring, tuning, sharding, data service.

TensorFlow is imported when something is done, not here.
"""

from utils.input_pipeline.parsing import batch_form
from utils.input_pipeline.report import TuneReport
from utils.input_pipeline.settings import Settings
from utils.input_pipeline.shards import Shards, write_shards
from utils.input_pipeline.store import LOCAL, SLOW, Store
from utils.input_pipeline.tuning import tune

__all__ = [
    "LOCAL",
    "SLOW",
    "Settings",
    "Shards",
    "Store",
    "TuneReport",
    "batch_form",
    "tune",
    "write_shards",
]
