"""`distlab run` where disks, terminals and neighbors misbehave: it goes on, or says why not."""

import json
import os
import socket
import subprocess
import sys
import textwrap

import pytest
from process_watch import start_process

from utils.cluster import streams
from utils.cluster.streams import LineReader, clean_line
from utils.engines import RunSettings, run_record
from utils.engines.agent import describe_own_folder
from utils.engines.engine_launcher import marking
from utils.engines.programs import THREAD_VARIABLES, share_cores
from utils.engines.rendezvous.channel import MAX_FRAME_BYTES
from utils.engines.rendezvous.compare import hash_file
from utils.engines.rendezvous.lines import LineBuffer
from utils.environment import count_cores
from utils.errors import InputError
from utils.events import read_events
from utils.processes.handshake import Garbled, admit, make_connection
from utils.tf_config import TaskConfig, build_cluster

WIDE = "\N{GRINNING FACE}" * 5000  # twelve bytes each in a frame


@pytest.fixture
def run(tmp_path):
    """Run a program, or start it where a test reads by itself."""

    def start(text, *words, wait=True, stderr=subprocess.PIPE):
        (tmp_path / "program.py").write_text(textwrap.dedent(text))
        command = [sys.executable, "-m", "distlab", "run", "--logs", "logs", *words, "program.py"]
        running = start_process(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=stderr, text=True
        )
        if not wait:
            return running
        output, said = running.communicate(timeout=300)
        return running.returncode, output, said

    return start


def test_a_full_disk_costs_the_log_and_not_the_run(run, tmp_path):
    log = tmp_path / "logs" / "attempt-1/worker-1/stdout.log"
    log.parent.mkdir(parents=True)
    log.symlink_to("/dev/full")
    (tmp_path / "logs" / "events.jsonl").symlink_to("/dev/full")
    status, output, said = run("print('one')\nprint('two')")
    assert status == 0
    assert said.count("logs/events.jsonl is incomplete: No space left on device") == 1
    lines = [line for line in output.splitlines() if line.startswith("[worker 1]")]
    lost = "[worker 1] (its log is incomplete: No space left on device)"
    assert lines == [lost, "[worker 1] one", "[worker 1] two"]
    assert (tmp_path / "logs" / "attempt-1/worker-0/stdout.log").read_text() == "one\ntwo\n"


def test_each_attempt_and_task_has_its_logs_and_the_run_its_events(run, tmp_path):
    text = """
        import json, os, sys, time
        step = json.dumps({"event": "step", "step": 7, "time": time.time()})
        os.write(int(os.environ["DISTLAB_EVENTS_DESCRIPTOR"]), step.encode() + b"\\n")
        print("out", os.environ["DISTLAB_RUN_ID"], os.environ["DISTLAB_LOCAL_RANK"])
        print("err", file=sys.stderr)
        second, restart = '"index": 1' in os.environ["TF_CONFIG"], os.environ["DISTLAB_RESTART"]
        open("written-" + restart, "w").close() if not second else None
        while not os.path.exists("written-" + restart):
            time.sleep(0.05)
        sys.exit(restart == "0" and second)
    """
    status, _, said = run(text, "--max-restarts", "1")
    assert status == 0
    happened = list(read_events(tmp_path / "logs" / "events.jsonl"))
    for attempt in (1, 2):
        for worker in (0, 1):
            folder = tmp_path / "logs" / f"attempt-{attempt}" / f"worker-{worker}"
            assert (folder / "stdout.log").read_text() == f"out {happened[0]['id']} {worker}\n"
            assert (folder / "stderr.log").read_text() == "err\n"
    kinds = [(e["event"], e.get("attempt")) for e in happened if e["event"] != "step"]
    first, second = ([("start", n), ("end", n)] * 2 + [("first_step", n)] for n in (1, 2))
    assert kinds[0] == ("run", None) and kinds[-1] == ("finish", None)
    assert kinds[6] == ("restart", 2)
    assert (sorted(kinds[1:6]), sorted(kinds[7:12])) == (sorted(first), sorted(second))
    host = socket.gethostname()
    assert {e["host"] for e in happened if e["event"] in ("run", "start", "end")} == {host}
    [restart] = [e for e in happened if e["event"] == "restart"]
    assert restart["task"] == "worker 1" and "ended with status 1" in restart["cause"]
    assert (happened[-1]["status"], happened[-1]["restarts"]) == (0, 1)
    assert 0 <= happened[-1]["goodput"] <= 1 and f"goodput {happened[-1]['goodput']:.0%}" in said


def test_what_a_task_reports_that_is_no_event_is_a_line_of_its_log(run, tmp_path):
    reports = b'[1, 2]\n7\n"step"\n{"event": "st\n'
    text = f"""
        import os
        os.write(int(os.environ["DISTLAB_EVENTS_DESCRIPTOR"]), {reports!r})
    """
    status, _, _ = run(text)
    assert status == 0
    log = tmp_path / "logs" / "attempt-1" / "worker-0" / "stdout.log"
    assert log.read_bytes() == reports


def test_a_log_that_is_full_makes_room_for_the_newest_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(run_record, "MAX_LOG_BYTES", 100)
    log = run_record.Log(tmp_path / "new" / "stdout.log")
    for number in range(30):
        log.add(f"line {number:03}")
    log.close()
    log.add("after its end")
    kept = [(tmp_path / "new" / f"stdout.log{end}").read_text().split("\n") for end in (".1", "")]
    lines = [*kept[0][:-1], *kept[1][:-1]]
    assert lines == [f"line {number:03}" for number in range(30 - len(lines), 30)]
    assert 100 < 9 * len(lines) <= 200


def test_what_a_terminal_obeys_is_taken_out_of_lines_from_other_machines():
    assert clean_line("\x1b]0;title\x07a\x1b[2J\x1b[31mred\x1b[0m\tb\x9b") == "ared b "


def test_a_reader_that_leaves_ends_nothing(run, tmp_path):
    """As `distlab run … | head -1`: the program goes on to its end, whose status counts."""
    text = "import sys\nfor i in range(20000):\n    print(i, 'x' * 50)\nsys.exit(5)"
    running = run(text, "--workers", "1", wait=False)
    assert running.stdout.readline().startswith("[worker 0] 0 x")
    running.stdout.close()
    said = running.stderr.read()
    assert running.wait(300) == 5 and "ended with status 5" in said and "Exception" not in said
    running.stderr.close()
    assert (
        len((tmp_path / "logs" / "attempt-1/worker-0/stdout.log").read_text().splitlines()) == 20000
    )


def test_messages_that_find_a_full_disk_end_nothing(run, tmp_path):
    text = "import os, sys\nsys.exit(os.environ['DISTLAB_RESTART'] == '0')"
    with open("/dev/full", "w") as full:
        running = run(text, "--max-restarts", "1", wait=False, stderr=full)
        assert running.communicate(timeout=300)[0] == "" and running.returncode == 0


def test_one_endless_line_comes_in_pieces(run, tmp_path):
    status, output, _ = run("print('y' * 5_000_000, end='')", "--workers", "1")
    assert status == 0 and output.count("y") == 5_000_000
    assert (tmp_path / "logs" / "attempt-1/worker-0/stdout.log").read_text().count("y") == 5_000_000


def test_a_program_that_closes_its_output_still_ends_with_its_status(run):
    text = "import os, sys\nprint('before', flush=True)\nos.close(1)\nos.close(2)\nos._exit(7)"
    status, output, said = run(text, "--workers", "1")
    assert (status, output) == (7, "[worker 0] before\n") and "status 7" in said


def test_pieces_of_a_line_lose_nothing():
    ours, theirs = os.pipe()
    taken = []
    reader = LineReader(ours, taken.append, max_bytes=100)
    os.write(theirs, b"a" * 150 + b"b" * 30 + b"\nshort\n" + b"c" * 20)
    os.close(theirs)
    while reader.read() is not None:
        pass
    reader.close()
    assert taken == ["a" * 150 + "b" * 30, "short", "c" * 20]


def test_progress_that_writes_over_itself_is_passed_on(monkeypatch):
    monkeypatch.setattr(streams, "PROGRESS_SECONDS", 3600.0)
    ours, theirs = os.pipe()
    taken = []
    reader = LineReader(ours, taken.append)
    for piece in (b"\r10 %\r20 %", b"\r30 %\r40 %", b"\rdone\r\n"):
        os.write(theirs, piece)
        reader.read()
    os.close(theirs)
    reader.close()
    assert taken == ["10 %", "20 %\r30 %\r40 %\rdone"]


def test_each_task_gets_its_share_of_the_cores_unless_it_is_set(monkeypatch):
    for name in THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    share = str(max(1, count_cores() // 2))
    assert share_cores(2) == dict.fromkeys(THREAD_VARIABLES, share) and share_cores(1) == {}
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert share_cores(2) == {"TF_NUM_INTRAOP_THREADS": share}


def test_a_checkpoint_folder_that_the_launcher_does_not_share_is_named(tmp_path):
    settings = RunSettings(checkpoint_dir=str(tmp_path / "kept"))
    config = TaskConfig(build_cluster(2, ports=[1, 2]), "worker", 1)
    order = settings.make_order(config, ["train.py"], 0)
    (tmp_path / "kept").mkdir()
    with marking(settings):
        assert describe_own_folder(order) == ""
    assert not os.listdir(tmp_path / "kept")
    assert f"the checkpoint folder {tmp_path}/kept on {socket.gethostname()} isn't the one" in (
        describe_own_folder(order)
    )


def test_what_is_sent_of_lines_fits_into_a_frame_in_any_alphabet():
    buffer = LineBuffer("there")
    for line in [*[WIDE] * 500, "the last"]:
        buffer.add(line)
    said, *lines = buffer.take()
    assert len(json.dumps(["lines", {"lines": [said, *lines]}])) < MAX_FRAME_BYTES
    assert said == f"… {501 - len(lines)} lines left out here; its log on there has them"
    assert lines[-1] == "the last" and len(lines) > 1 and buffer.take() == []


@pytest.mark.parametrize("noise", [b"[" * 1024, b'{"a":' * 200, b"\x00" * 100, b"null"])
def test_rubbish_in_place_of_a_handshake_is_garbled(noise):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(len(noise).to_bytes(4, "big") + noise)
        with pytest.raises(Garbled):
            admit(make_connection(ours), b"k" * 32)


def test_a_program_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(InputError, match=f"{tmp_path} can't be read"):
        hash_file(tmp_path)
