"""One quiet TensorFlow for each test process, split into four logical devices.

It is split the moment anything imports it, before its first operation: a test that
uses TensorFlow cannot miss the split, and one that does not never waits for it.
"""

import signal
import sys
from importlib import util
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from utils.environment import quiet_tensorflow

DEVICES = 4


class SplitTensorFlow:
    """A finder (`sys.meta_path`) that wraps the first import of TensorFlow, and no other."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = util.find_spec(name)
        if spec is not None:
            load = spec.loader.exec_module

            def load_and_split(module: ModuleType) -> None:
                with quiet_tensorflow():
                    load(module)
                    split(module)

            spec.loader.exec_module = load_and_split
        return spec


def split(tensorflow: ModuleType) -> None:
    (cpu,) = tensorflow.config.list_physical_devices("CPU")
    pieces = [tensorflow.config.LogicalDeviceConfiguration()] * DEVICES
    tensorflow.config.set_logical_device_configuration(cpu, pieces)
    assert len(tensorflow.config.list_logical_devices("CPU")) == DEVICES


def pytest_configure() -> None:
    """Heed interrupts: a job in a shell's background ignores them, and so would its children."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if "tensorflow" in sys.modules:
        split(sys.modules["tensorflow"])
    else:
        sys.meta_path.insert(0, SplitTensorFlow())


@pytest.fixture(scope="session")
def tf() -> ModuleType:
    """TensorFlow, split into four logical devices."""
    import tensorflow

    return tensorflow
