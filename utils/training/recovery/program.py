"""One worker's program: train by the method that the settings name, and survive."""

from .settings import RecoveryReport, RecoverySettings


def train_resumably(settings: RecoverySettings) -> RecoveryReport:
    """Train as `settings` say, from the newest whole checkpoint on: one worker's program.

    Run it on every task of a cluster (`LocalCluster.start(train_resumably, settings,
    restarts=3)`). It reports the events `restore` (step, passed_over),
    `step` (step, epoch, loss), `saving` and `checkpoint` (step), `left` (step) where all
    leave on notice, and `end`. Only "preemption" heeds a SIGTERM, from its first line on.
    """
    from .fit import train_with_backup
    from .trainer import Trainer, hold_notice, train_with_checkpoints

    if settings.method == "backup":
        return train_with_backup(Trainer(settings))
    on_notice = settings.method == "preemption"
    if on_notice:
        hold_notice()
    return train_with_checkpoints(Trainer(settings), on_notice)
