"""`distlab run` with real processes: what tasks get, how runs end, what is left behind."""

import io
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import warm_start
from command_lines import run_all
from process_watch import lives, start_process, wait_for

from distlab.cli import diagnose, starting
from distlab.cli.run import tell_end
from utils.cluster import local_launcher
from utils.engines import ENGINES, RunReport, RunSettings, TaskReport, catalog, run_program
from utils.errors import InputError
from utils.processes.registry import MARK_VARIABLE, find_clusters
from utils.tf_config.tracebacks import find_traceback

FIRST_LINES = """
import json, os, signal, subprocess, sys, time
task = json.loads(os.environ["TF_CONFIG"])["task"]
cluster = json.loads(os.environ["TF_CONFIG"])["cluster"]
index, restart = task["index"], int(os.environ["DISTLAB_RESTART"])
if "ps" not in cluster:  # what Keras on JAX reads
    told = [os.environ["KERAS_DISTRIBUTION_" + name]
            for name in ("JOB_ADDRESSES", "NUM_PROCESSES", "PROCESS_ID")]
    assert told == [",".join(cluster["worker"]), str(len(cluster["worker"])), str(index)]
    assert os.environ["JAX_COORDINATOR_ADDRESS"] == cluster["worker"][0]
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Write a program that knows its task, `index` and `restart`; the folder is the present one."""
    monkeypatch.chdir(tmp_path)

    def write(text, name="program.py"):
        (tmp_path / name).write_text(FIRST_LINES + textwrap.dedent(text))
        return name

    return write


def start(*words, **settings):
    command = [sys.executable, "-m", "distlab", "run", *map(str, words)]
    return start_process(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **settings
    )


def run(*words, status=0, **settings):
    running = start(*words, **settings)
    output, errors = running.communicate(timeout=300)
    assert running.returncode == status, output + errors
    return output, errors


def run_json(*words, status=0):
    return json.loads(run("--json", *words, status=status)[0])


def test_every_task_gets_its_place_the_arguments_and_the_folder(program):
    text = "print(task['type'], index, len(set(cluster['worker'])), sys.argv[1:], restart)"
    folder = "print(os.environ['DISTLAB_CHECKPOINT_DIR'])"
    name = program(text + "\n" + folder)
    output, errors = run("--workers", 3, "--checkpoint-dir", "kept", name, "--epochs", "3")
    assert os.path.isdir("kept")
    for index in range(3):
        assert f"[worker {index}] worker {index} 3 ['--epochs', '3'] 0\n" in output
    assert output.count(f"] {os.getcwd()}/kept\n") == 3
    assert "3 tasks" in errors and "logs in runs/" in errors


def test_the_report_and_a_log_for_each_task(program):
    report = run_json("--workers", 2, "--logs", "logs", program("print('here is', index)"))
    assert list(report) == ["workers", "restarts", "seconds", "tasks", "cause"]
    assert (report["workers"], report["restarts"], report["cause"]) == (2, 0, None)
    assert [task["task"] for task in report["tasks"]] == ["worker 0", "worker 1"]
    assert all(task["status"] == 0 and task["host"] for task in report["tasks"])
    logs = [open(task["log"]).read() for task in report["tasks"]]
    assert logs == ["here is 0\n", "here is 1\n"]


def test_the_first_error_is_named_with_its_traceback_and_status(program):
    name = program("""
        if index == 1:
            raise ValueError("no such column: price")
        time.sleep(300)
    """)
    output, errors = run("--workers", 3, name, status=1)
    assert "Traceback (most recent call last)" in errors and "[worker 1] Traceback" in output
    last = errors.splitlines()[-2]
    assert last.startswith("distlab run: worker 1 on ")
    assert "ended with status 1: ValueError: no such column: price" in last


def test_the_status_is_that_of_the_task_that_failed_first(program):
    name = program("time.sleep(300 * (index == 0)); print('no data'); sys.exit(7)")
    report = run_json(name, status=7)
    assert [task["status"] for task in report["tasks"]] == [143, 7]
    assert "worker 1" in report["cause"] and "status 7" in report["cause"]
    assert "its last line: no data. See its logs in runs/" in report["cause"]


def test_the_first_error_is_found_while_the_others_go_on_talking(program):
    name = program("""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        begun = time.monotonic()
        while index == 0 or time.monotonic() - begun < 1:
            print(index, "x" * 50)
        raise KeyError("price")
    """)
    report = run_json("--workers", 3, name, status=1)
    assert "KeyError: 'price'" in report["cause"] and "worker 0" not in report["cause"]


def test_a_killed_task_is_128_and_its_signal(program):
    name = program("os.kill(os.getpid(), signal.SIGKILL) if index else time.sleep(300)")
    report = run_json(name, status=137)
    assert report["tasks"][1]["status"] == 137 and "SIGKILL" in report["cause"]
    assert "memory may have run out" in report["cause"]


def test_all_start_again_on_new_ports_as_often_as_allowed(program):
    name = program("""
        print("attempt", restart, *cluster["worker"], flush=True)
        open(f"{index}-{restart}", "w").close()
        while not os.path.exists(f"0-{restart}"):  # or it is ended before its first line
            time.sleep(0.01)
        if index == 1 and restart < 2:
            sys.exit(3)
        if restart < 2:
            time.sleep(300)
    """)
    report = run_json("--max-restarts", 5, name)
    assert report["restarts"] == 2 and report["cause"] is None
    log = Path(report["tasks"][0]["log"])
    paths = sorted(log.parents[2].glob("attempt-*/worker-0/stdout.log"))
    assert paths[-1] == log
    attempts = [line for path in paths for line in path.read_text().splitlines()]
    assert [line.split()[1] for line in attempts] == ["0", "1", "2"]
    assert len({line.partition("127.")[2] for line in attempts}) == 3
    report = run_json("--max-restarts", 1, name, status=3)
    assert report["restarts"] == 1 and "worker 1" in report["cause"]


def test_a_run_with_parameter_servers_ends_with_its_coordinator(program):
    name = program("""
        print(task["type"], index, sorted(cluster))
        if task["type"] != "chief":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(600)  # and were ended
        time.sleep(0.5)
    """)
    report = run_json("--workers", 2, "--ps", 1, name)
    assert [t["task"] for t in report["tasks"]] == ["chief 0", "worker 0", "worker 1", "ps 0"]
    assert [t["status"] for t in report["tasks"]] == [0, 0, 0, 0]


def test_a_worker_of_a_parameter_server_cluster_starts_again_alone_at_its_address(program):
    name = program("""
        address = cluster[task["type"]][index]
        print(os.getpid(), address)
        if task == {"type": "worker", "index": 1} and not os.path.exists("died"):
            open("died", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        if task == {"type": "worker", "index": 1}:
            sys.stdout.flush()
            open("again", "w").close()
        open(f"said-{task['type']}-{index}", "w").close()
        if task["type"] != "chief":
            time.sleep(300)
        while not os.path.exists("again") or sum(n.startswith("said") for n in os.listdir()) < 4:
            time.sleep(0.05)  # or it ends the others before their first line
    """)
    report = run_json("--workers", 2, "--ps", 1, "--max-restarts", 1, name)
    assert report["restarts"] == 1 and report["cause"] is None
    logs = [open(task["log"]).read().splitlines() for task in report["tasks"]]
    assert [len(lines) for lines in logs] == [1, 1, 2, 1]
    assert logs[2][0].split()[1] == logs[2][1].split()[1]
    os.remove("died")
    os.remove("again")
    report = run_json("--workers", 2, "--ps", 1, name, status=137)
    assert "worker 1" in report["cause"]


def test_the_command_names_every_engine():
    assert sorted(starting.ENGINES) == sorted(ENGINES)


def heed_hangups():
    """In a child: these tests may run under nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.mark.parametrize(
    ("does", "seconds", "said"),
    [("exec sleep 60", 0.5, "no answer in 0.5 s"), ("echo >&2 'no config'", 120.0, "no config")],
)
def test_a_controller_that_does_not_answer_is_said(monkeypatch, tmp_path, does, seconds, said):
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\n{does}\n")
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(catalog, "ANSWER_SECONDS", seconds)
    with pytest.raises(InputError, match=rf"Slurm doesn't answer here \({said}\)"):
        ENGINES["slurm"].find_host("partition")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_signals_are_passed_on_and_tasks_may_end_by_themselves(program, number):
    name = program("""
        def leave(number, frame):
            print("saved before", number)
            sys.exit(0)
        signal.signal(signal.SIGINT, leave)
        signal.signal(signal.SIGTERM, leave)
        open(f"ready-{index}", "w").close()
        time.sleep(300)
    """)
    running = start("--json", name, preexec_fn=heed_hangups)
    wait_for(lambda: os.path.exists("ready-0") and os.path.exists("ready-1"))
    running.send_signal(number)
    report = json.loads(running.communicate(timeout=120)[0])
    assert running.returncode == 128 + number
    assert [task["status"] for task in report["tasks"]] == [0, 0]
    heard = signal.SIGINT if number == signal.SIGINT else signal.SIGTERM
    assert open(report["tasks"][1]["log"]).read() == f"saved before {heard:d}\n"


DEAF = """
signal.signal(signal.SIGINT, lambda *_: None)
signal.signal(signal.SIGTERM, lambda *_: None)
child = subprocess.Popen(["sleep", "300"], start_new_session=True)
with open(f"ready-{index}", "w") as file:
    file.write(f"{os.getpid()} {child.pid} {os.environ['DISTLAB_CLUSTER']}")
time.sleep(300)
"""
BUSY = "while True: sum(range(1000))"


def wait_for_deaf():
    """Return the processes of two tasks that hear no signal, and their children."""
    names = ["ready-0", "ready-1"]
    wait_for(lambda: all(os.path.exists(n) and os.path.getsize(n) for n in names))
    words = [open(name).read().split() for name in names]
    assert words[0][2] == words[1][2]
    return [int(number) for row in words for number in row[:2]], words[0][2]


def are_gone(processes):
    return not any(map(lives, processes))


@pytest.mark.parametrize("grace", [0.5, 300])
def test_tasks_that_do_nothing_after_a_signal_are_killed_with_what_they_started(program, grace):
    """When their grace is over or, as they don't use it, long before."""
    running = start("--grace-period", grace, program(DEAF))
    processes, mark = wait_for_deaf()
    running.send_signal(signal.SIGTERM)
    assert running.communicate(timeout=120) and running.returncode == 143
    assert are_gone(processes) and not find_clusters(mark.split(":")[0])


def test_a_second_signal_ends_them_at_once(program):
    running = start("--grace-period", 200, program(DEAF.replace("time.sleep(300)", BUSY)))
    processes, _ = wait_for_deaf()
    running.send_signal(signal.SIGINT)
    assert any("passed on to every task" in line for line in running.stderr)  # or both are one
    assert running.poll() is None and not are_gone(processes[:1])
    running.send_signal(signal.SIGINT)
    assert running.communicate(timeout=120) and running.returncode == 130
    assert are_gone(processes)


@pytest.mark.parametrize("with_keeper", [False, True])
def test_nothing_outlives_a_launcher_that_is_killed(program, with_keeper):
    """The keeper ends the tasks. If it is killed too, `distlab processes stop` finds them."""
    running = start(program(DEAF))
    processes, mark = wait_for_deaf()
    keepers = [
        child
        for child in psutil.Process(running.pid).children()
        if any("processes.keeper" in word for word in child.cmdline())
    ]
    assert len(keepers) == 1
    if with_keeper:
        keepers[0].kill()
    running.kill()
    running.communicate(timeout=120)
    if with_keeper:
        assert not are_gone(processes)
        identity = mark.split(":")[0]
        command = [sys.executable, "-m", "distlab", "processes", "stop", identity]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    wait_for(lambda: are_gone(processes))
    wait_for(lambda: not os.path.exists(mark.split(":", 4)[4]))


def test_a_program_that_ends_well_leaves_no_child_and_no_folder(program):
    name = program("""
        child = subprocess.Popen(["sleep", "300"], start_new_session=True)
        print(child.pid, os.environ["DISTLAB_CLUSTER"])
    """)
    report = run_json(name)
    words = [open(task["log"]).read().split() for task in report["tasks"]]
    assert are_gone([int(pid) for pid, _ in words])
    assert not os.path.exists(words[0][1].split(":", 4)[4])


def test_a_port_that_was_lost_is_not_a_failure(program, tmp_path, monkeypatch):
    """TensorFlow's own server finds its port taken; all start again, which no restart pays for."""
    monkeypatch.setattr(warm_start, "FOLDERS", (*warm_start.FOLDERS, tmp_path.resolve()))
    name = program("""
        import socket
        if index == 1 and not os.path.exists("taken"):
            port = int(cluster["worker"][1].split(":")[1])
            thief = socket.create_server(("", port))
            open("taken", "w").close()
        import tensorflow as tf
        while not os.path.exists("taken"):
            time.sleep(0.05)
        if index == 1:
            tf.distribute.Server(cluster, job_name="worker", task_index=1)
            print("has its server")
    """)
    said, settings = [], RunSettings(workers=2, max_restarts=0, logs="logs")
    report = run_program([sys.executable, name], settings, lambda *line: said.append(line))
    assert (report.restarts, report.cause) == (0, None)
    assert said.count(("worker 1", "has its server")) == 1 and os.path.exists("taken")


def test_modules_and_other_programs_run_too(program):
    program("print('a module', index)", name="train_it.py")
    assert "[worker 1] a module 1\n" in run("-m", "train_it")[0]
    output = run("--workers", 1, "sh", "-c", "echo $TF_CONFIG")[0]
    assert output.startswith('[worker 0] {"cluster": {"worker": ["127.0.0.1:')


def test_a_project_with_its_own_utils_keeps_it(program, tmp_path):
    folder = tmp_path / "utils"
    folder.mkdir()
    (folder / "__init__.py").write_text("owner = 'the project'")
    output, _ = run(program("import utils; print(utils.owner)"), cwd=tmp_path)
    assert sorted(output.splitlines()) == [f"[worker {k}] the project" for k in (0, 1)]


def test_output_of_many_tasks_is_merged_line_by_line(program):
    name = program("""
        for number in range(200):
            print(f"{index}-{number}-" + "x" * 200)
        print("last words", end="")
    """)
    lines = run("--workers", 4, name)[0].splitlines()
    assert len(lines) == 4 * 201
    for index in range(4):
        own = [line for line in lines if line.startswith(f"[worker {index}] ")]
        assert own[-1].endswith("last words")
        assert [line.split("-")[1] for line in own[:-1]] == [str(n) for n in range(200)]


def test_workers_see_their_own_gpus_only(program, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    name = program("""
        print(task["type"], repr(os.environ["CUDA_VISIBLE_DEVICES"]), flush=True)
        open(f"said-{task['type']}-{index}", "w").close()
        while sum(n.startswith("said") for n in os.listdir()) < sum(map(len, cluster.values())):
            time.sleep(0.05)  # or the coordinator ends them before their first line
    """)
    output = run("--ps", 1, name)[0]
    assert "[worker 0] worker '4,5'\n" in output and "[worker 1] worker '6,7'\n" in output
    assert "[ps 0] ps ''\n" in output and "[chief 0] chief ''\n" in output
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    said = run(name, status=2)[1]
    assert "2 workers need 2 GPUs, and this machine has 1. Start at most 1" in said
    output = run("--gpus", "none", name)[0]
    assert output.count("worker ''\n") == 2


def test_the_library_call_gives_the_same_report(program, tmp_path):
    lines = []
    settings = RunSettings(workers=2, logs=str(tmp_path / "kept"))
    name = program("""
        if index == 0:
            print("hi", flush=True)
            open("said", "w").close()
            time.sleep(300)
        while not os.path.exists("said"):
            time.sleep(0.05)
        raise KeyError("x")
    """)
    report = run_program([sys.executable, name], settings, lambda *both: lines.append(both))
    assert report.status == 1 and report.traceback.endswith("KeyError: 'x'")
    assert ("worker 0", "hi") in lines and MARK_VARIABLE not in os.environ


def test_who_waits_says_for_whom_and_whether_it_can_come(program, monkeypatch):
    monkeypatch.setattr("utils.cluster.waiting.WORD_SECONDS", 0.2)
    name = program("""
        import socket
        if index == 0:
            end = socket.create_server(("", int(cluster["worker"][0].split(":")[1])))
        while index != 1 and not os.path.exists("heard"):
            time.sleep(0.05)
    """)
    ended = "worker 1, which ended without opening a port"
    said, expected = [], f"worker 0: waiting for worker 2, with no open port yet; {ended}"

    def hear(line):
        said.append(line)
        if line == expected:
            Path("heard").touch()

    run_program([sys.executable, name], RunSettings(workers=3), lambda *line: None, hear)
    assert expected in said


def test_the_end_names_the_logs_of_this_machine(capsys):
    tasks = [TaskReport("worker 0", "there", 0, "runs/of-the-host/attempt-1/worker-0/stdout.log")]
    tell_end(RunReport(1, 0, 1.0, tasks, logs="runs/here"))
    tell_end(RunReport(2, 0, 0.0))  # left before it began
    assert capsys.readouterr().err == "distlab run: 1 task, 1.0 s; logs in runs/here\n"


def test_a_traceback_is_cut_out_of_what_was_written():
    text = """before
    Traceback (most recent call last):
      File "a.py", line 1
    ValueError: first
    Traceback (most recent call last):
      File "b.py", line 1
    KeyError: 'x'
    after"""
    lines = textwrap.dedent(text.replace("before", "    before")).splitlines()
    assert find_traceback(lines).splitlines()[-1] == "KeyError: 'x'"
    assert find_traceback(["all", "is", "well"]) == ""
    lines = [
        "hello",
        '  File "x.py", line 3',
        "    print(",
        "         ^",
        "SyntaxError: never closed",
    ]
    assert find_traceback(lines) == "\n".join(lines[1:])


def test_the_cause_is_the_error_below_autographs_first_line(program):
    name = program(r"""
        frame = '    File "/mine/net.py", line 3, in step  *\n        f()\n'
        raise ValueError(f'in user code:\n\n{frame}\n    ValueError: shapes differ\n')
    """)
    said = run("--workers", 1, name, status=1)[1]
    assert "ended with status 1: ValueError: shapes differ (/mine/net.py, line 3)" in said


def test_the_killed_one_is_named_although_its_end_is_told_last(program, monkeypatch):
    """Its peer sees it go, and ends; a busy launcher may hear of either end first."""
    name = program("""
        with open(f"process-{index}", "w") as file:
            file.write(str(os.getpid()))
        if index:
            os.kill(os.getpid(), signal.SIGKILL)
        raise ConnectionError("UnavailableError: Collective ops is aborted by: Socket closed")
    """)
    signal_group = local_launcher._signal_group

    def tell_last(process, number):
        killed = Path("process-1")
        if killed.exists() and killed.read_text() == str(process):
            wait_for(lambda: '"status": 1' in Path("logs/events.jsonl").read_text())
        signal_group(process, number)

    monkeypatch.setattr(local_launcher, "_signal_group", tell_last)
    monkeypatch.setattr("utils.cluster.supervisor.PEER_SECONDS", 300.0)
    settings = RunSettings(workers=2, logs="logs")
    report = run_program([sys.executable, name], settings, lambda *_: None, lambda *_: None)
    assert report.status == 137 and "worker 1" in report.cause and "SIGKILL" in report.cause


def test_a_culprits_own_error_comes_before_what_its_death_caused(program):
    name = program("""
        def fail(number, frame):
            raise KeyError("label_column")
        signal.signal(signal.SIGTERM, fail)
        open(f"ready-{index}", "w").close()
        while index or not os.path.exists("ready-1"):
            time.sleep(0.05)
        raise ConnectionError("UnavailableError: Collective ops is aborted by: Socket closed")
    """)
    said = run(name, status=1)[1]
    assert "distlab run: worker 1 on " in said
    assert f"ended with status 1: KeyError: 'label_column' ({os.getcwd()}/{name}, line " in said


def test_diagnose_reads_logs_a_folder_or_standard_input(program):
    name = program("""
        time.sleep(300) if index == 0 else None
        raise RuntimeError("Attempt to convert a value (PerReplica:{ 0: 1 }) to a Tensor")
    """)
    assert "Keras 3's fit cannot train" in run("--logs", "logs", name, status=1)[1]
    for words in (["logs"], ["logs/attempt-1/worker-1/stderr.log"], [], ["/dev/stdin"]):
        done = subprocess.run(
            [sys.executable, "-m", "distlab", "diagnose", *words],
            capture_output=True,
            text=True,
            input=open("logs/attempt-1/worker-1/stderr.log").read(),
            timeout=120,
        )
        assert (
            done.returncode == 1 and "cure: run the same command with --keras legacy" in done.stdout
        )
    program(
        """
        time.sleep(300) if index == 0 else None
        raise ValueError("no such column")
    """,
        "other.py",
    )
    run("--logs", "others", "other.py", status=1)
    Path("empty.log").touch()
    Path("done.log").write_text("epoch 1: loss 0.5, mean_squared_error: 0.2\nsaved\n")
    Path("killed.log").write_text("epoch 1: loss 0.5\nKilled\n")
    Path("odd.log").write_text("epoch 1: loss 0.5\nfatal: it is Monday\n")
    Path("noise.log").write_bytes(os.urandom(300_000) + b"NCCL WARN UnavailableError " * 10_000)
    said = "[worker 1] RuntimeError: Collective ops must be configured at program startup"
    Path("powershell.log").write_text(said, encoding="utf-16")
    with open("sparse.log", "wb") as file:
        file.truncate(2**30)
    expected = [
        ([""], 2, "LOG must not be empty"),
        (["powershell.log"], 1, "the strategy was made after TensorFlow had run its first"),
        (["sparse.log"], 2, "sparse.log must not be empty. Name the tasks' logs"),
        (["others", "nowhere.log"], 2, "nowhere.log: No such file"),
        (["/dev/zero"], 2, "/dev/zero: neither a file nor a pipe"),
        (["empty"], 2, "empty has no *.log file"),
        (["others"], 1, "worker-1: it raised ValueError: no such column\ncure: correct the"),
        (["--tf-config", "two.json", "worker-1.log"], 1, "it waits for worker:0 at a:2222"),
        (["--tf-config", '{"cluster": 1}', "done.log"], 2, "must be JSON with a cluster"),
        (
            ["--tf-config", "nowhere.json", "done.log"],
            2,
            "nowhere.json can't be read (No such file",
        ),
        (["empty.log", "done.log"], 0, "empty.log: is empty\n2 logs: no error found"),
        (["empty.log"], 2, "empty.log must not be empty. Name the tasks' logs, or add --tf-config"),
        (["done.log"], 0, "1 log: no error found. If the run failed"),
        (["killed.log"], 1, "the process was killed with SIGKILL"),
        (["odd.log"], 0, "1 log: no known cause. The first error"),
        (["noise.log"], 1, "another task cannot be reached any more"),
    ]
    os.mkdir("empty")
    Path("two.json").write_text('{"cluster": {"worker": ["a:2222", "b:2222"]}}')
    Path("worker-1.log").write_text("Started server with target: grpc://b:2222\n")
    ends = run_all([["diagnose", *words] for words, _, _ in expected], os.getcwd())
    for (words, status, says), (ended, output, errors) in zip(expected, ends, strict=True):
        assert ended == status and says in (errors if status == 2 else output), words


def test_who_types_a_log_is_told_that_it_is_read(monkeypatch, capsys):
    terminal = SimpleNamespace(isatty=lambda: True, buffer=io.BytesIO(b"it says nothing"))
    monkeypatch.setattr(sys, "stdin", terminal)
    assert diagnose.read_logs("-") == {"input": "it says nothing"}
    assert "reading a log from here, up to Ctrl-D" in capsys.readouterr().err
