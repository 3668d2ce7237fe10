"""Training that survives: a multi-worker run that a kill, a freeze or a notice doesn't spoil.

    from utils.training.recovery import RecoverySettings, train_with_recovery
    job = cluster.start(train_with_recovery, RecoverySettings(folder), restarts=3)

Three of TensorFlow's ways, each to the uninterrupted run's weights. Importing this
package doesn't import TensorFlow; `train_with_recovery` does.

- `custom`: the custom loop that survives: checkpoints at intervals, and the handler that saves on
  notice
- `fit`: Keras's `fit` that survives: BackupAndRestore, corrected: a kill at any moment does no
  harm
- `settings`: the settings and the result of a run that survives
- `trainer`: what all three ways share: the model, its step, and the batches from a step on
"""

from .settings import METHODS as METHODS
from .settings import RESTART_CODE as RESTART_CODE
from .settings import RecoveryReport as RecoveryReport
from .settings import RecoverySettings as RecoverySettings


def train_with_recovery(settings: RecoverySettings) -> RecoveryReport:
    """Train as `settings` say, from the newest intact checkpoint: one worker's program.

    Run it on every task of a cluster. It reports the events `restore` (step, skipped_checkpoints),
    `step` (step, epoch, loss), `saving` and `checkpoint` (step), `left` (step) if all leave on
    notice, and `end`. Only "preemption" heeds a SIGTERM, from its first line on. Returns steps,
    losses and the final weights.

        LocalCluster().run(train_with_recovery, RecoverySettings("checkpoints"), restarts=3)
    """
    from . import custom, fit
    from .trainer import Trainer

    if settings.method == "preemption":
        custom.hold_notice()
    train = {
        "manager": custom.train_with_manager,
        "preemption": custom.train_with_handler,
        "backup": fit.train_with_backup,
    }[settings.method]
    return train(Trainer(settings))
