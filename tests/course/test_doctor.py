"""The doctor as a whole: the command, probes that fail, TensorFlow's child, the report."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from child_programs import run_python, start_distlab
from process_watch import group_members, wait_for

from distlab import doctor
from distlab.cli import main
from distlab.doctor import commands, tensorflow_trial
from distlab.doctor.examination import list_probes
from distlab.doctor.findings import STATUSES, Finding, Probe, run_probes
from distlab.doctor.tensorflow_trial import judge_gpus, try_tensorflow
from utils.strategies import SINGLE_MACHINE

ROOT = Path(__file__).parents[2]


def run_watched(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    """Run the command as a shell does, and say on its last line whether it imported TensorFlow."""
    code = (
        "import sys; from distlab.cli import main\n"
        "try: status = main(sys.argv[1:])\n"
        "except SystemExit as end: status = end.code\n"
        "print('tensorflow' in sys.modules or 'keras' in sys.modules, file=sys.stderr)\n"
        "sys.exit(status)"
    )
    return run_python("-c", code, *arguments, cwd=ROOT, variables=environment)


def find(findings, name: str) -> Finding:
    (found,) = [finding for finding in findings if finding.name == name]
    return found


# --- the command ---------------------------------------------------------------------------


def test_the_command_tries_tensorflow_in_a_child_and_says_that_the_course_can_run():
    done = run_watched("doctor", "--json")
    record = json.loads(done.stdout)
    assert done.returncode == 0 and record["ok"] is True, done.stdout + done.stderr
    assert done.stderr.split()[-1] == "False", "the parent imported TensorFlow"
    found = [Finding(**finding) for finding in record["findings"]]
    for name in ("TensorFlow start", "logical devices", "computation"):
        assert find(found, name).status == "ok"
    assert "splits into 4" in find(found, "logical devices").value
    assert "convolution are right on" in find(found, "computation").value
    assert all(len(line) <= 80 for line in doctor.format_report(found).splitlines())


def test_the_json_object_has_its_fields_and_quick_leaves_the_child_out():
    done = run_watched("doctor", "--quick", "--json")
    record = json.loads(done.stdout)
    assert set(record) == {"ok", "findings", "works"}
    for finding in record["findings"]:
        assert set(finding) == {"name", "status", "value", "advice"}
        assert finding["status"] in STATUSES
        assert all(isinstance(text, str) for text in finding.values())
        assert finding["status"] == "ok" or finding["advice"], f"{finding['name']}: no advice"
    names = [finding["name"] for finding in record["findings"]]
    assert len(names) == len(set(names)), "a name stands twice"
    assert {"Python", "Keras", "cores", "memory", "GPU", "MNIST", "bubblewrap", "Java"} <= {*names}
    assert not {"TensorFlow start", "computation"} & {*names}
    works = record["works"]
    assert works["strategies"] == [*SINGLE_MACHINE, "multi-worker", "parameter-server"]
    assert done.stderr.split()[-1] == "False", "the parent imported TensorFlow"


def test_a_crash_of_tensorflow_is_told_by_its_signal_and_gives_exit_status_1(tmp_path):
    package = tmp_path / "tensorflow"
    package.mkdir()
    (package / "__init__.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    done = run_watched("doctor", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1, done.stdout
    assert "illegal instruction" in done.stdout and "AVX" in done.stdout
    assert "✗ problem" in done.stdout and "can't run here yet: 1 problem" not in done.stderr
    assert "The course can't run here yet" in done.stdout


def test_text_goes_to_an_ascii_terminal():
    done = run_watched("doctor", "--quick", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii() and "\x1b" not in done.stdout and "+ ok " in done.stdout


def test_an_interrupt_leaves_no_child(tmp_path):
    package = tmp_path / "tensorflow"
    package.mkdir()
    (package / "__init__.py").write_text(
        f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
        "time.sleep(600)"
    )
    process = start_distlab("doctor", cwd=ROOT, variables={"PYTHONPATH": str(tmp_path)})
    pid = int(wait_for(lambda: read_text(tmp_path / "pid")))
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 130
    assert wait_for(lambda: not psutil.pid_exists(pid))


def read_text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


# --- probes that fail ----------------------------------------------------------------------


def test_a_probe_that_hangs_or_raises_does_not_harm_the_others():
    def fail():
        raise PermissionError("no entry")

    probes = [
        Probe("slow", lambda: time.sleep(30), 0.3),
        Probe("broken", fail, 600),
        Probe("fine", lambda: Finding("fine", "ok", "1"), 600),
    ]
    slow, broken, fine = run_probes(probes)
    assert slow.status == "warning" and "no answer within 0.3 s" in slow.value
    assert broken.status == "warning" and "PermissionError: no entry" in broken.value
    assert fine == Finding("fine", "ok", "1")


def test_a_probe_that_hangs_in_a_program_leaves_no_program(tmp_path):
    pid_file = tmp_path / "pid"
    script = f"echo $$ > {pid_file}; sleep 600 & sleep 600"

    def hang():
        commands.run_command(["sh", "-c", script], 600)

    def see_it_begin():
        wait_for(lambda: read_text(pid_file))
        return Finding("begun", "ok", "")

    run_probes([Probe("begun", see_it_begin, 600), Probe("slow", hang, 0.1)])
    pid = int(pid_file.read_text())
    assert wait_for(lambda: not group_members(pid))


def test_every_probe_has_a_time_limit_and_another_name():
    for quick in (True, False):
        probes = list_probes(quick)
        assert all(0 < probe.limit_seconds <= 70 for probe in probes)
        assert len({probe.name for probe in probes}) == len(probes)


def test_an_unknown_status_is_refused():
    with pytest.raises(ValueError, match="got 'fine'"):
        Finding("name", "fine", "value")


# --- TensorFlow's child --------------------------------------------------------------------

IMPORTED = '{"stage": "import", "version": "2", "seconds": 1.0}'
KERAS = '{"stage": "keras", "version": "3", "backend": "tensorflow"}'
GPUS = '{"stage": "gpus", "names": [], "built_with": true}'


def try_child(code: str, limit_seconds: float = 120.0) -> list[Finding]:
    return try_tensorflow(limit_seconds, [sys.executable, "-c", code])


def test_a_child_killed_for_memory_while_computing_is_told_so():
    code = f"import os; print('''noise\n{IMPORTED}\n{KERAS}\n{GPUS}''')\n"
    code += 'print(\'{"stage": "split", "devices": 4}\', flush=True); os.kill(os.getpid(), 9)'
    found = try_child(code)
    assert find(found, "TensorFlow start").status == "ok"
    assert find(found, "logical devices").status == "ok"
    computation = find(found, "computation")
    assert computation.status == "problem"
    assert "memory ran out" in computation.value and "computing" in computation.value


def test_of_a_child_that_was_killed_for_hanging_the_stage_is_named(monkeypatch):
    hung = commands.Outcome(None, f"{IMPORTED}\n", "")
    asked = []

    def hang(command, limit_seconds, **more):
        asked.append(limit_seconds)
        return hung

    monkeypatch.setattr(tensorflow_trial, "run_command", hang)
    found = try_child("", 2.0)
    assert asked == [2.0]
    start = find(found, "TensorFlow start")
    assert start.status == "problem"
    assert "no answer within 2 s, importing Keras" in start.value


def test_an_import_error_is_quoted():
    found = try_child("raise ImportError('libfoo.so: cannot open')")
    assert "ImportError: libfoo.so: cannot open" in find(found, "TensorFlow start").value
    assert not doctor.can_run(found)


def test_another_keras_backend_is_a_problem():
    code = f"print('''{IMPORTED}\n{KERAS.replace('tensorflow', 'jax')}''')"
    found = try_child(code)
    assert any("Keras runs on jax" in finding.value for finding in found)
    assert not doctor.can_run(found)


def test_gpus_that_tensorflow_does_not_see_are_a_warning(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    driver, blind = ["Some GPU"] * 2, {"names": [], "built_with": True}
    unseen = judge_gpus(driver, blind)
    assert unseen.status == "warning" and "2 x Some GPU" in unseen.value
    assert "pip install -e '.[gpu]'" in unseen.advice
    log = "W0000 00:00 gpu_device.cc:2366] Cannot dlopen some GPU libraries. Please"
    said = judge_gpus(driver, blind, log).advice
    assert '"Cannot dlopen some GPU libraries. Please"' in said and ".[gpu]" in said
    assert "without CUDA" in judge_gpus(driver, {**blind, "built_with": False}).advice
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert "CUDA_VISIBLE_DEVICES hides them" in judge_gpus(driver, blind).advice
    assert judge_gpus(driver, {"names": driver, "built_with": True}).value == "2 x Some GPU"
    assert judge_gpus([], blind).status == "missing"
    assert "TensorFlow not asked" in judge_gpus(driver, None).value


# --- the report ----------------------------------------------------------------------------

FINDINGS = [
    Finding("Python", "ok", "3.11.2"),
    Finding("Java", "missing", "not installed", "only the Spark part needs it"),
    Finding("bubblewrap", "warning", "cannot seal " * 12, "grading refuses to run unsealed"),
    Finding("TensorFlow start", "problem", "x", "advice " * 20),
]


def test_the_report_has_words_beside_its_marks_and_80_columns_at_most():
    text = doctor.format_report(FINDINGS)
    assert max(map(len, text.splitlines())) <= 80
    for finding in FINDINGS:
        assert any(finding.status in line and finding.name in line for line in text.splitlines())
    assert "The course can't run here yet: 1 ok, 1 missing, 1 warning, 1 problem." in text
    assert "the Spark part of lesson 19 (Java: not installed)" in text
    assert "grading: it refuses" in text and "distlab train --strategy: none" in text
    assert doctor.format_report(FINDINGS, plain=True).isascii()


def test_a_problem_and_nothing_else_means_that_the_course_cannot_run():
    assert doctor.can_run(FINDINGS[:3]) and not doctor.can_run(FINDINGS)
    assert doctor.make_record(FINDINGS)["works"]["strategies"] == []
    assert doctor.make_record(FINDINGS[:1])["works"]["without"] == []


def test_exit_status_follows_the_findings(monkeypatch, capsys):
    for findings, status in ((FINDINGS, 1), (FINDINGS[:3], 0)):
        monkeypatch.setattr(doctor, "examine", lambda quick, found=findings: found)
        assert main(["doctor", "--quick"]) == status
        assert "What works here" in capsys.readouterr().out


def test_lessons_on_disk_are_those_that_run(tmp_path, monkeypatch):
    monkeypatch.setattr("distlab.doctor.report.NOTEBOOKS", tmp_path)
    for name in ("00-start-here.ipynb", "notes.ipynb"):
        (tmp_path / name).write_text("{}")
    assert doctor.describe_works(FINDINGS[:1])["lessons"] == {"00-start-here": True}
    assert doctor.describe_works(FINDINGS)["lessons"] == {"00-start-here": False}
