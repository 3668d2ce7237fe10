"""Training that survives: a multi-worker run that a kill, a freeze or a notice does not spoil.

    from utils.training.recovery import RecoverySettings, train_resumably
    job = cluster.start(train_resumably, RecoverySettings(folder), restarts=3)

Three of TensorFlow's ways, each to the uninterrupted run's weights. Importing this
package does not import TensorFlow; `train_resumably` does.
"""

from .program import train_resumably as train_resumably
from .settings import METHODS as METHODS
from .settings import RESTART_CODE as RESTART_CODE
from .settings import RecoveryReport as RecoveryReport
from .settings import RecoverySettings as RecoverySettings
