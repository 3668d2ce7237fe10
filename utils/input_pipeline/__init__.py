"""tf.data pipelines from naive to tuned: shards, stages, measuring, tuning, sharding, data service.

TensorFlow is imported when something is done, not here.
"""

from .parsing import batch_form as batch_form
from .rebuild import TuneSettings as TuneSettings
from .report import TuneReport as TuneReport
from .store import LOCAL as LOCAL
from .store import SLOW as SLOW
from .store import Shards as Shards
from .store import Store as Store
from .store import write_shards as write_shards
from .tuning import tune as tune
