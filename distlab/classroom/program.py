"""The program of every laptop of a class: the course's own training, with the teacher's settings.

Started as a task of a rendezvous: TF_CONFIG, the settings (`DISTLAB_HANDOUT`) and the folder of
this machine's checkpoints come in the environment. It writes its progress as events, one JSON
object a line. The teacher's machine draws each student's lane from them.
"""

import os
import sys
import time

from distlab.classroom.settings import ClassSettings, read_settings
from utils.engines.settings import CHECKPOINT_VARIABLE, HANDOUT_VARIABLE
from utils.environment import quiet_tensorflow
from utils.errors import DistributedError
from utils.events import EVENTS_VARIABLE, report

STDOUT = "1"
PATIENCE_SECONDS = 12.0  # in which the teacher's machine finds out who is lost, and ends this task
PEER_ERRORS = ("UnavailableError", "AbortedError", "CancelledError")  # of TensorFlow


def train(settings: ClassSettings, folder: str) -> None:
    """Train to the end from this machine's newest checkpoint, then say which weights came out."""
    with quiet_tensorflow():
        from utils.training.recovery.custom import train_with_manager
        from utils.training.recovery.trainer import Trainer
    from utils.training.report import weights_checksum

    class WatchedTrainer(Trainer):
        """Says when the pause is over, which isn't computing."""

        def pause(self) -> None:
            super().pause()
            report("batch")

    pupil = WatchedTrainer(settings.to_recovery(folder))
    done = train_with_manager(pupil)
    report("weights", step=done.step, checksum=weights_checksum(done.weights))
    pupil.group.barrier()  # who leaves early fails the others


def main() -> int:
    """Train; return the exit status. A failure without a bug is one line, no traceback."""
    os.environ[EVENTS_VARIABLE] = STDOUT
    try:
        settings = read_settings(os.environ.get(HANDOUT_VARIABLE, ""))
        train(settings, os.environ[CHECKPOINT_VARIABLE])
    except DistributedError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if type(error).__name__ not in PEER_ERRORS:
            raise
        print(f"the others don't answer any more ({type(error).__name__})", file=sys.stderr)
        time.sleep(PATIENCE_SECONDS)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
