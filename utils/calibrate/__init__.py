"""Measure this machine, then predict: from one process here to thousands of devices elsewhere.

    from utils.calibrate import Scenario, calibrate, check_locally, predict

    profile = calibrate("cnn", batch=64)                  # at most two processes, half a minute
    for check in check_locally("cnn", profile):           # 2 and 4 workers of this machine
        print(check.workers, check.predicted, check.measured)
    for row in predict(profile, Scenario(devices=(8, 64, 512))):
        print(row.devices, row.step_seconds, row.bottleneck)

`profile` holds what is measured, `local` the model of several workers on the cores of one
machine, `prediction` the model of a cluster. `measuring` runs in the workers and is the only one
that needs TensorFlow. Known hardware, and models described by their shape, are in `simulate`.
"""

from ..simulate.machines import MACHINES, Machine, find_machine
from .local import LocalCheck, LocalCosts, calibrate, check_locally, predict_local
from .prediction import Prediction, Scenario, predict
from .profile import Profile, read_profile

__all__ = [
    "MACHINES",
    "LocalCheck",
    "LocalCosts",
    "Machine",
    "Prediction",
    "Profile",
    "Scenario",
    "calibrate",
    "check_locally",
    "find_machine",
    "predict",
    "predict_local",
    "read_profile",
]
