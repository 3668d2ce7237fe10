"""Training that survives: a multi-worker run that a kill, a freeze or a notice does not spoil.

    from utils.training.recovery import RecoverySettings, train_resumably
    job = cluster.start(train_resumably, RecoverySettings(folder), restarts=3)

Three of TensorFlow's ways, each to the uninterrupted run's weights. Importing this
package does not import TensorFlow; `train_resumably` does.
"""

from utils.training.recovery.settings import METHODS as METHODS
from utils.training.recovery.settings import RESTART_CODE as RESTART_CODE
from utils.training.recovery.settings import RecoveryReport as RecoveryReport
from utils.training.recovery.settings import RecoverySettings as RecoverySettings
from utils.training.recovery.settings import train_resumably as train_resumably
