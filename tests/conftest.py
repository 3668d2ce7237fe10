"""One quiet TensorFlow for each test process, split into four logical devices.

It is split the moment anything imports it, before its first operation: a test that
uses TensorFlow can't miss the split, and one that doesn't never waits for it.
"""

import contextlib
import gc
import os
import re
import signal
import sys
from importlib import util
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest
from needs import TOOLS, need_browser
from process_watch import end_started
from warm_start import make_warm_start

from utils.environment import quiet_tensorflow

DEVICES = 4
NO_SANDBOX = "Grading needs bubblewrap"  # says `distlab grade` without it
GIVEN_GPUS = "DISTLAB_TEST_GPUS"  # CUDA_VISIBLE_DEVICES as it was before the tests
# before NumPy is imported: its two threads wait for each other in a loop where other tests compute
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
WARM_START = make_warm_start()
pytest_plugins = ("run_record",)
NUMBERED = re.compile(r"(?<![a-z0-9])(lab)?(\d\d)[-_][a-z]")  # 05-loss-scaling, lab05_loss_scaling
# the longest first: the last file to start should be a short one
LONGEST = """
lab_answers engine_clusters modernize_table recovery multi_worker book examples engine_joining
scenes grading_capstone training checkpoints parameter_server gpu_check classroom
grading_harness grading_executor grading_honest nbgrader_stock own_data labs cli_grade readme
multi_worker_cli cluster_leftovers grading_attacks chaos launchers cli_train strategies release
exercises rendezvous rendezvous_networks old_programs grading_damage notebooks_in_jupyterlab
home lab_command cockpit_browser data tune user_function explorables modernize transformer
tpu_ready grading_plans loss_scale authoring lesson_companions cluster_local devices cockpit
engines cluster_diagnose hardening plan_command warm_kernel sharding command_line large_batch
device_iterators
"""
SLOW_FILES = [f"test_{name}.py" for name in LONGEST.split()]
# lessons that run more of themselves: engines, if they're installed; the capstone, if all is tested
# (and the longest lessons)
MORE = {
    "10-fault-tolerance.ipynb": ["long"],
    "12-input-pipelines.ipynb": ["long"],
    "17-large-batch-training.ipynb": ["long"],
    "19-engines.ipynb": ["more_with_tools"],
    "22-capstone.ipynb": ["more_in_all", "long"],
    "24-keras-on-jax.ipynb": ["long"],
}


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
    os.environ.setdefault(GIVEN_GPUS, os.environ.get("CUDA_VISIBLE_DEVICES", "all"))
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # all but tests marked gpu see the same machine
    if WARM_START:
        WARM_START.install()
        config.pluginmanager.register(WARM_START, "warm start")  # for the kernels of notebooks
    if "tensorflow" in sys.modules:
        split(sys.modules["tensorflow"])
    else:
        sys.meta_path.insert(0, SplitTensorFlow())


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if WARM_START:
        WARM_START.enabled = item.get_closest_marker("cold_start") is None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    end_started()
    if WARM_START:
        WARM_START.enabled = True  # for a notebook, which has no hook here


def pytest_sessionfinish() -> None:
    end_started()  # of a test that an interrupt cut short


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> pytest.TestReport:
    """Skip what stops because submissions can't be run in a sandbox on this machine."""
    report = yield
    if call.excinfo is not None and NO_SANDBOX in str(call.excinfo.value):
        report.outcome = "skipped"
        words = f"Skipped: needs bubblewrap: {TOOLS['bubblewrap']}"
        report.longrepr = (str(item.path), None, words)
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark notebooks slow and everything else unmarked fast; the files that take longest first.

    With several processes the last file to start should be a short one.
    """
    for item in items:
        if item.path.suffix == ".ipynb":
            item.add_marker(pytest.mark.slow(60))
            item.extra_keyword_matches.add(name_notebook(item.path.name))
            for mark in MORE.get(item.path.name, []):
                item.add_marker(mark)
        elif found := NUMBERED.search(item.name):
            item.extra_keyword_matches.add(f"{found[1] or 'lesson'}{found[2]}")
        if item.path.name in SLOW_FILES:
            item.add_marker(pytest.mark.slow(100 + len(SLOW_FILES) - place_of(item)))
        if item.get_closest_marker("slow") is None:
            item.add_marker(pytest.mark.fast)
    items.sort(key=lambda item: -find_seconds(item))


def place_of(item: pytest.Item) -> int:
    return SLOW_FILES.index(item.path.name)


def name_notebook(name: str) -> str:
    """Return the word that `-k` takes for a notebook: lesson05, or lab05."""
    return name[:5] if name.startswith("lab") else f"lesson{name[:2]}"


def find_seconds(item: pytest.Item) -> float:
    """Return about how long the whole file of `item` takes, by its mark `slow(seconds)`."""
    mark = item.get_closest_marker("slow")
    return mark.args[0] if mark else 0.0


@pytest.fixture
def real_gpus(monkeypatch):
    """The GPUs of this machine, which the test's own processes may use; skips if there are none."""
    from needs import skip_without

    from utils.gpus import list_gpus

    given = os.environ[GIVEN_GPUS]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    if given == "all":
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    return list_gpus() or skip_without("a GPU", "nvidia-smi lists none")


@pytest.fixture
def fake_gpus(monkeypatch, tmp_path):
    """Call it with kinds of GPU: the driver then lists them, in this process and its children."""
    from gpu_fakes import FakeMachine

    return FakeMachine(monkeypatch, tmp_path)


@pytest.fixture(scope="session")
def tf() -> ModuleType:
    """TensorFlow, split into four logical devices."""
    import tensorflow

    return tensorflow


@pytest.fixture
def untested(monkeypatch):
    """Let `train` leave out its test data in this process."""
    from untested import test_on_nothing

    monkeypatch.setattr("utils.training.program.test", test_on_nothing)


@pytest.fixture(scope="session")
def data_file(tmp_path_factory):
    """A file as FASHION_MNIST names one: 640 training and 400 test images."""
    import numpy as np

    from utils.data import load

    images = load("fashion-mnist")
    train, test = images.train.take(640), images.test.take(400)
    path = tmp_path_factory.mktemp("data") / "small.npz"
    np.savez(
        path,
        x_train=train.images,
        y_train=train.labels,
        x_test=test.images,
        y_test=test.labels,
    )
    return path


@pytest.fixture
def write_warm(tmp_path_factory, monkeypatch):
    """Call it with a program's text: the command that runs it, in a warm process if there is one.

    For a program that needs its own process and imports TensorFlow anyway.
    """
    import warm_start

    folder = tmp_path_factory.mktemp("programs").resolve()
    monkeypatch.setattr(warm_start, "FOLDERS", (*warm_start.FOLDERS, folder))

    def write(text: str, name: str = "program.py") -> list[str]:
        path = folder / name
        path.write_text(text)
        return [sys.executable, str(path)]

    return write


@pytest.fixture(scope="module")
def launcher():
    """A module's own launcher: one warm process starts the tasks of all its clusters."""
    from utils.cluster import make_launcher

    launcher = make_launcher()
    yield launcher
    launcher.close()


@pytest.fixture(scope="module")
def chromium():
    """A module's own headless browser, whose pages wait long; skips without one."""
    from lab_server import BROWSER_FLAGS, PATIENCE_MS

    path = need_browser()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=path, args=BROWSER_FLAGS, timeout=PATIENCE_MS
        )
        make_page = running.new_page

        def open_page(**options):
            page = make_page(**options)
            page.set_default_timeout(PATIENCE_MS)
            return page

        running.new_page = open_page
        yield running
        running.close()


@pytest.fixture
def show_page(chromium):
    """Return a function that opens a page with a file in it; all are closed after the test."""
    with contextlib.ExitStack() as pages:

        def show(path=None, **options):
            page = chromium.new_page(**options)
            pages.callback(page.close)
            if path is not None:
                page.goto(path.as_uri())
            return page

        yield show
