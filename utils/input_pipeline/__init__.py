"""tf.data pipelines from naive to tuned: shards, stages, measuring, tuning, sharding, data service.

TensorFlow is imported when something is done, not here.
"""

from .parsing import batch_form
from .rebuild import TuneSettings
from .report import TuneReport
from .shards import Shards, write_shards
from .store import LOCAL, SLOW, Store
from .tuning import tune

__all__ = [
    "LOCAL",
    "SLOW",
    "TuneSettings",
    "Shards",
    "Store",
    "TuneReport",
    "batch_form",
    "tune",
    "write_shards",
]
