"""`distlab run --independent`: tasks that form no cluster, and start again alone."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from machines import Launcher
from process_watch import start_process, wait_for

from utils.tf_config import parse_tf_config, pick_free_ports

FIRST_LINES = """
import os, signal, sys, time
index, count = int(os.environ["DISTLAB_TASK_INDEX"]), int(os.environ["DISTLAB_TASK_COUNT"])
restart = int(os.environ["DISTLAB_RESTART"])
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a program that knows its place; the folder is the current one."""
    monkeypatch.chdir(tmp_path)

    def write(text):
        Path("program.py").write_text(FIRST_LINES + textwrap.dedent(text))
        return "program.py"

    return write


def start(*words, **settings):
    command = [sys.executable, "-m", "distlab", "run", "--independent", "--logs", "logs"]
    return start_process(
        [*command, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **settings,
    )


def run(*words, **settings):
    running = start("--json", *words, **settings)
    output, said = running.communicate(timeout=300)
    return running.returncode, json.loads(output), said


def test_tasks_get_a_place_and_no_cluster(write):
    name = write("print(index, count, restart, 'TF_CONFIG' in os.environ, sys.argv[1:])")
    outside = {**os.environ, "TF_CONFIG": '{"cluster": {"worker": ["other:1"]}}'}
    status, report, said = run("--workers", 3, name, "--all", env=outside)
    assert (status, report["failed"], report["cause"]) == (0, 0, None)
    for index in range(3):
        assert f"[worker {index}] {index} 3 0 False ['--all']\n" in said


def test_tf_config_comes_if_it_is_asked_for(write):
    name = write("print(index, os.environ['TF_CONFIG'])")
    status, _, said = run("--tf-config", "--workers", 2, name)
    lines = [line.split(" ", 3)[2:] for line in said.splitlines() if line.startswith("[worker")]
    assert status == 0 and sorted(index for index, _ in lines) == ["0", "1"]
    for index, text in lines:
        config = parse_tf_config(text)
        assert (config.index, len(config.cluster.worker)) == (int(index), 2)


def test_a_task_that_fails_starts_again_alone(write):
    name = write("""
        print("run", restart, flush=True)
        if index == 1 and restart < 2:
            os.kill(os.getpid(), signal.SIGKILL)
    """)
    status, report, said = run("--workers", 3, "--max-restarts", 2, name)
    assert (status, report["failed"], report["restarts"]) == (0, 0, 2)
    assert [said.count(f"[worker {index}] run") for index in range(3)] == [1, 3, 1]
    assert Path("logs/attempt-1/worker-1/stdout.log").read_text() == "run 0\nrun 1\nrun 2\n"
    words = "worker 1 was ended by SIGKILL; it starts again, the others continue"
    assert said.count(words) == 2


def test_each_task_has_its_own_restarts_and_the_others_run_to_their_end(write):
    """Tasks 0 and 1 use all of theirs; task 2, which waits for the last end, still succeeds."""
    name = write("""
        if index < 2:
            open(f"{index}-{restart}", "w").close()
            raise ValueError(f"no data {index}")
        while not (os.path.exists("0-1") and os.path.exists("1-1")):
            time.sleep(0.02)
        time.sleep(0.5)
        open("late", "w").close()
    """)
    status, report, said = run("--workers", 3, "--max-restarts", 1, name)
    assert status == 1 and Path("late").exists()
    assert (report["failed"], report["restarts"]) == (2, 2)
    assert sorted(path.name for path in Path().glob("[01]-*")) == ["0-0", "0-1", "1-0", "1-1"]
    assert [task["status"] for task in report["tasks"]] == [1, 1, 0]
    assert "ValueError: no data" in report["cause"] and "Traceback" in said


def test_the_summary_counts_what_failed_and_names_the_first(write):
    name = write("""
        while index == 2 and '"status": 6' not in open("logs/events.jsonl").read():
            time.sleep(0.05)  # until the end of the other one has been seen
        print("Connection reset by peer" * (index == 1), flush=True)  # of a download
        sys.exit(5 + index if index else 0)
    """)
    running = start("--workers", 3, name)
    said = running.communicate(timeout=300)[1]
    assert running.returncode == 6
    assert "3 tasks, " in said and ", 2 failed; logs in logs" in said
    [cause] = [line for line in said.splitlines() if "ended with status 6" in line]
    assert cause.startswith("distlab run: worker 1 on ")


def test_a_signal_ends_all_of_them(write):
    running = start("--workers", 2, "--max-restarts", 5, write("print('here')\ntime.sleep(300)"))
    lines = [running.stdout.readline() for _ in range(2)]
    assert sorted(lines) == ["[worker 0] here\n", "[worker 1] here\n"]
    running.send_signal(signal.SIGTERM)
    output, said = running.communicate(timeout=120)
    assert running.returncode == 128 + signal.SIGTERM and output == ""
    assert "SIGTERM: passed on to every task" in said and "starts again" not in said


# ---- on several machines


@pytest.fixture
def launchers(write):
    """Two launchers that meet, each with its own address, for the program that is given."""
    address, started = f"127.0.0.1:{pick_free_ports(1)[0]}", []

    def start_both(text, *words):
        name = write(text)
        for number in (1, 2):
            own = ["--rendezvous", address, "--advertise-address", f"127.0.0.{number}"]
            words_here = "--independent", "--logs", f"logs-{number}", *words, name
            started.append(Launcher(*own, *words_here))
            if number == 1:
                started[0].wait_for("hosting at")
        return started

    yield start_both
    for launcher in started:
        launcher.close()


def test_a_task_of_another_machine_starts_again_there_alone(launchers):
    host, member = launchers(
        """
        print(index, count, restart, "TF_CONFIG" in os.environ, flush=True)
        sys.exit(index == 1 and restart < 2)
        """,
        "--max-restarts",
        2,
    )
    status, report, _ = host.end()
    assert (status, report["failed"], report["restarts"]) == (0, 0, 2)
    assert member.end()[:2] == (0, report)
    assert Path("logs-1/attempt-1/worker-0/stdout.log").read_text() == "0 2 0 False\n"
    assert Path("logs-2/attempt-1/worker-1/stdout.log").read_text() == "".join(
        f"1 2 {k} False\n" for k in range(3)
    )


def test_a_lost_machine_fails_its_task_and_no_other(launchers):
    host, member = launchers(
        """
        open(f"there-{index}", "w").close()
        while not os.path.exists("go"):
            time.sleep(0.02)
        """,
        "--max-restarts",
        3,
    )
    wait_for(lambda: Path("there-0").exists() and Path("there-1").exists())
    member.process.kill()
    Path("go").touch()
    status, report, _ = host.end()
    assert status == 255 and (report["failed"], report["restarts"]) == (1, 0)
    assert [task["status"] for task in report["tasks"]] == [0, 255]
    assert "is lost with its machine" in report["cause"]
