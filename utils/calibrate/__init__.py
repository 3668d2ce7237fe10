"""Measure this machine, then predict: from one process here to thousands of devices elsewhere.

    from utils.calibrate import Choice, calibrate, check_locally, predict

    profile = calibrate("cnn", batch=64)                  # at most two processes, half a minute
    for check in check_locally("cnn", profile):           # 2 and 4 workers of this machine
        print(check.workers, check.predicted, check.measured)
    for row in predict(profile, Choice(devices=(8, 64, 512))):
        print(row.devices, row.step_seconds, row.limit)

`profile` holds what is measured, `machines` what specifications say of known hardware,
`local` the model of several workers on the cores of one machine, `prediction` that of a
cluster. `measuring` runs in the workers and is the only one that needs TensorFlow.
"""

from .local import Check, LocalCosts, calibrate, check_locally, predict_local
from .machines import MACHINES, Machine, find_machine
from .prediction import Choice, Prediction, predict
from .profile import Profile, read_profile

__all__ = [
    "MACHINES",
    "Check",
    "Choice",
    "LocalCosts",
    "Machine",
    "Prediction",
    "Profile",
    "calibrate",
    "check_locally",
    "find_machine",
    "predict",
    "predict_local",
    "read_profile",
]
