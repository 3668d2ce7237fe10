"""One quiet TensorFlow for each test process, split into four logical devices.

It is split the moment anything imports it, before its first operation: a test that
uses TensorFlow cannot miss the split, and one that does not never waits for it.
"""

import gc
import signal
import sys
from importlib import util
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest
from warm_start import make_warm_start

from utils.environment import quiet_tensorflow

DEVICES = 4
WARM_START = make_warm_start()
# The longest first: with several processes the last file to start should be a short one.
LONG_FILES = (
    "test_engine_clusters.py", "test_lab_answers.py", "test_recovery.py", "test_multi_worker.py",
    "test_book.py", "19-engines.ipynb", "test_examples.py", "test_engine_joining.py",
    "test_canvases.py", "test_grading_capstone.py", "test_training.py", "22-capstone.ipynb",
    "test_checkpoints.py", "test_parameter_server.py", "10-fault-tolerance.ipynb",
    "test_classroom.py", "test_grading_harness.py", "test_grading_executor.py",
    "test_nbgrader_stock.py", "test_own_data.py", "test_labs.py",
    "test_cli_grade.py", "test_readme.py", "test_multi_worker_cli.py",
    "test_cluster_leftovers.py", "test_grading_attacks.py", "test_chaos.py", "test_launchers.py",
    "test_cli_train.py", "test_strategies.py", "test_release.py", "test_exercises.py",
    "test_rendezvous.py", "test_rendezvous_networks.py",
)  # fmt: skip


class SplitTensorFlow:
    """A finder (`sys.meta_path`) that wraps the first import of TensorFlow, and no other.

    Who only asks where TensorFlow is (`importlib.util.find_spec`) is no import.
    """

    is_looking = False

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != "tensorflow" or self.is_looking:
            return None
        self.is_looking = True
        try:
            spec = util.find_spec(name)
        finally:
            self.is_looking = False
        if spec is not None:
            load = spec.loader.exec_module

            def load_and_split(module: ModuleType) -> None:
                sys.meta_path.remove(self)
                with quiet_tensorflow():
                    load(module)
                    split(module)
                gc.freeze()  # or every search for garbage goes through TensorFlow's modules

            spec.loader.exec_module = load_and_split
        return spec


def split(tensorflow: ModuleType) -> None:
    (cpu,) = tensorflow.config.list_physical_devices("CPU")
    pieces = [tensorflow.config.LogicalDeviceConfiguration()] * DEVICES
    tensorflow.config.set_logical_device_configuration(cpu, pieces)
    assert len(tensorflow.config.list_logical_devices("CPU")) == DEVICES


def pytest_configure(config: pytest.Config) -> None:
    """Heed interrupts: a job in a shell's background ignores them, and so would its children."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "cold_start: every program starts as a fresh Python")
    if WARM_START:
        WARM_START.install()
    if "tensorflow" in sys.modules:
        split(sys.modules["tensorflow"])
    else:
        sys.meta_path.insert(0, SplitTensorFlow())


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if WARM_START:
        WARM_START.enabled = item.get_closest_marker("cold_start") is None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that take longest first, and keep each file's own order."""
    places = {name: place for place, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


@pytest.fixture(scope="session")
def tf() -> ModuleType:
    """TensorFlow, split into four logical devices."""
    import tensorflow

    return tensorflow


@pytest.fixture(scope="module")
def launcher():
    """A module's own launcher: one warm process starts the tasks of all its clusters."""
    from utils.cluster import make_launcher

    launcher = make_launcher()
    yield launcher
    launcher.close()


@pytest.fixture(scope="module")
def chromium():
    """A module's own headless browser; skips where there is none, but fails in CI."""
    from lab_server import BROWSER_FLAGS, browser_path

    path = browser_path()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=BROWSER_FLAGS)
        yield running
        running.close()
