"""What is forked from the warm process behaves as a fresh Python, and leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest
import warm_start
from process_watch import lives, wait_for

from utils.processes.lifetime import die_with_parent
from utils.processes.module_command import make_module_command

pytestmark = pytest.mark.skipif(not warm_start.make_warm_start(), reason="no warm start here")

TELL = """
import json, os, sys
json.dump({
    "warm": "tensorflow" in sys.modules, "arguments": sys.argv[1:], "folder": os.getcwd(),
    "variables": {name: os.environ.get(name) for name in ("ONE", "HOME")}, "name": __name__,
    "parent": os.getppid(), "leads": os.getsid(0) == os.getpid(), "read": sys.stdin.read(),
    "place": sys.path[0], "main": sys.modules["__main__"].__file__,
    "shown": open("/proc/self/environ").read().rstrip("\\0").split("\\0"),
}, sys.stdout)
print("ä", file=sys.stderr)
os.write(int(sys.argv[1]), b"passed on")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder whose programs start warm."""
    folder = tmp_path_factory.mktemp("programs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(warm_start, "FOLDERS", (*warm_start.FOLDERS, folder))
        yield folder


@pytest.fixture
def command(folder, request):
    """A function that writes a program and returns the command that runs it."""

    def write(code, *words):
        path = folder / f"{request.node.name.partition('[')[0]}.py"
        path.write_text(textwrap.dedent(code))
        return [sys.executable, str(path), *words]

    return write


@pytest.mark.parametrize("session", [True, False])
def test_it_has_arguments_environment_folder_streams_and_descriptors(command, tmp_path, session):
    reader, writer = os.pipe()
    line = command(TELL, str(writer), "a b", "ü")
    same = warm_start.pick_starting(os.environ)
    done = subprocess.run(
        line,
        cwd=tmp_path,
        env=same | {"ONE": "1 = one"},
        input="hello",
        capture_output=True,
        text=True,
        pass_fds=[writer],
        start_new_session=session,
        timeout=100,
        check=True,
    )
    os.close(writer)
    with open(reader) as passed_on:  # to the end: nobody else has kept the other end open
        assert passed_on.read() == "passed on"
    told = json.loads(done.stdout)
    assert done.stderr == "ä\n"
    assert told == {
        "warm": True,
        "arguments": line[2:],
        "folder": str(tmp_path),
        "name": "__main__",
        "variables": {"ONE": "1 = one", "HOME": None},
        "parent": os.getpid(),
        "leads": session,
        "read": "hello",
        "place": str(Path(line[1]).parent),
        "main": line[1],
        "shown": [f"{name}={value}" for name, value in (same | {"ONE": "1 = one"}).items()],
    }


@pytest.mark.parametrize(
    "code, status, said",
    [
        ("pass", 0, ""),
        ("raise SystemExit(3)", 3, ""),
        ("raise SystemExit('no')", 1, "no\n"),
        ("raise KeyError(1)", 1, "KeyError: 1\n"),
        ("import os; os._exit(7)", 7, ""),
        ("raise KeyboardInterrupt", -signal.SIGINT, "KeyboardInterrupt\n"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, ""),
        ("import atexit, sys; atexit.register(sys.stderr.write, 'bye')", 0, "bye"),
    ],
)
def test_it_ends_as_python_ends(command, code, status, said):
    done = subprocess.run(command(code), capture_output=True, text=True, timeout=100)
    assert done.returncode == status
    assert done.stderr.endswith(said) and bool(done.stderr) == bool(said)


def test_a_program_named_within_its_folder_knows_its_whole_path(command):
    path = Path(command("print(__file__)")[1])
    done = subprocess.run(
        [sys.executable, path.name], cwd=path.parent, capture_output=True, text=True, timeout=100
    )
    assert done.stdout == f"{path}\n", done.stderr


def test_a_folder_that_is_not_there_is_the_usual_error(command, tmp_path):
    with pytest.raises(FileNotFoundError, match="gone"):
        subprocess.run(command("pass"), cwd=tmp_path / "gone")


def test_tensorflow_runs_in_it_and_so_does_what_it_starts(command):
    line = command("""
        import subprocess, sys
        import tensorflow as tf
        print(float(tf.add(1.0, 2.0)), flush=True)
        if len(sys.argv) == 1:
            subprocess.run([sys.executable, __file__, "once more"], check=True)
        """)
    before = psutil.Process().children()
    done = subprocess.run(line, stdout=subprocess.PIPE, text=True, timeout=100, check=True)
    assert done.stdout == "3.0\n3.0\n"
    assert len(psutil.Process().children()) <= max(1, len(before))


def test_it_dies_with_its_parent_if_that_is_asked(command):
    """What `preexec_fn` does in a fresh process, the fork does itself."""
    line = command("""
        import ctypes, sys
        signal = ctypes.c_int()
        ctypes.CDLL(None).prctl(2, ctypes.byref(signal), 0, 0, 0)  # PR_GET_PDEATHSIG
        print("tensorflow" in sys.modules, signal.value)
        """)
    for before, number in ((None, 0), (die_with_parent, signal.SIGKILL)):
        done = subprocess.run(line, stdout=subprocess.PIPE, text=True, preexec_fn=before)
        assert done.stdout == f"True {int(number)}\n"


@pytest.mark.parametrize("difference", ["variable", "own utils", "utils above", "cold_start"])
def test_what_needs_a_fresh_python_has_one(command, tmp_path, monkeypatch, request, difference):
    settings = {"cwd": tmp_path, "env": dict(os.environ)}
    if difference == "variable":
        settings["env"]["TF_ENABLE_ONEDNN_OPTS"] = "0"
    elif difference == "own utils":
        (tmp_path / "utils").mkdir()
    elif difference == "utils above":  # a notebook's first cell puts the folder above on its path
        (tmp_path / "utils").mkdir()
        settings["cwd"] = tmp_path / "notebooks"
        settings["cwd"].mkdir()
    else:
        request.node.add_marker("cold_start")
        request.config.hook.pytest_runtest_setup(item=request.node)
    line = command("import sys; sys.exit('tensorflow' in sys.modules)")
    assert subprocess.run(line, timeout=100, **settings).returncode == 0


def test_sigkill_of_the_parent_leaves_no_warm_process(command):
    """A program that was killed takes the warm process with it that it would start others from."""
    line = command("import time; print(flush=True); time.sleep(300)")
    owner = subprocess.Popen(line, stdout=subprocess.PIPE)
    owner.stdout.readline()
    (left,) = wait_for(lambda: psutil.Process(owner.pid).children())
    owner.kill()
    assert owner.wait(60) == -signal.SIGKILL
    wait_for(lambda: not left.is_running() or left.status() == psutil.STATUS_ZOMBIE)
    owner.stdout.close()


TESTS = """
import os, subprocess, sys, time
import warm_start
warm_start.import_tensorflow = warm_start.import_modules = lambda *names: None  # starts at once
if __name__ == "__main__" and len(sys.argv) == 3:
    warm_start.main()
warm_start.__file__ = __file__
warm_start.FOLDERS = (*warm_start.FOLDERS, warm_start.Path(sys.argv[1]).parent)
started = warm_start.make_warm_start()
started.install()
line = [sys.executable, sys.argv[1]]
program = subprocess.Popen(line, stdout=subprocess.PIPE)
program.stdout.readline()
holder = os.fork()  # it has the connection to the warm process, and outlives this one
if holder:
    print(started._process.pid, program.pid, holder, flush=True)
time.sleep(300)
"""


def test_sigkill_of_the_tests_ends_the_warm_process_and_its_programs(command, tmp_path):
    """A fork of the tests that outlives them doesn't keep them alive."""
    tests = tmp_path / "tests.py"
    tests.write_text(TESTS)
    program = command("import time; print(flush=True); time.sleep(300)")[1]
    variables = {**os.environ, "PYTHONPATH": f"{Path(__file__).parent}:{warm_start.ROOT}"}
    owner = subprocess.Popen(
        [sys.executable, tests, program], stdout=subprocess.PIPE, env=variables
    )
    *left, holder = map(psutil.Process, map(int, owner.stdout.readline().split()))
    owner.kill()
    owner.wait(60)
    try:
        wait_for(lambda: not [one for one in left if lives(one.pid)])
        assert lives(holder.pid)
    finally:
        holder.kill()
        owner.stdout.close()


def test_the_warm_process_of_a_cluster_and_its_cold_tasks_start_warm():
    for module in (warm_start.TASKS, "utils.cluster.cold_task"):
        assert warm_start.is_listed(make_module_command(module, "3"), "/")
