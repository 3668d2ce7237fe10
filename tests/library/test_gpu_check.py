"""`make gpu-check`, rehearsed: the code of each check runs here, on logical CPU devices."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from needs import EVERYTHING

from benchmarks import gpu_check, gpu_checks

pytestmark = [pytest.mark.slow(90), pytest.mark.more_in_all]
ROOT = Path(__file__).resolve().parents[2]
QUICK = ["all-reduces", "half-precision", "jit-compile", "two-workers"]
WHOLE = sorted({*gpu_checks.CHECKS} - {"benchmark", "marked-tests"})
REHEARSED = WHOLE if EVERYTHING else QUICK


@pytest.mark.parametrize("name", REHEARSED)
def test_each_check_passes_on_two_logical_devices(name):
    found = gpu_check.run_check(name, "CPU", 2, 280)
    assert found["state"] == "passed", found
    head, *body = found["rows"]
    assert body and all(len(row) == len(head) for row in body)


def test_what_cannot_be_shown_and_what_fails_is_told_apart():
    assert gpu_check.run_check("all-reduces", "CPU", 1, 280)["state"] == "not run"
    assert "need a GPU" in gpu_check.run_check("marked-tests", "CPU", 2, 280)["why"]
    late = gpu_check.run_check("resume", "CPU", 2, 0.05)
    assert late["state"] == "FAILED" and "no end within" in late["why"]
    assert "no-such" in gpu_check.run_check("no-such", "CPU", 2, 280)["why"]


def test_weights_that_differ_fail_a_check():
    run = {"weights": [[1.0, 2.0]], "names": ["GPU:0"], "loss": [1.0]}
    other = {**run, "weights": [[1.0, 2.0 + 1e-6]]}
    assert gpu_checks.find_difference(run, other) == pytest.approx(1e-6)
    with pytest.raises(AssertionError, match="weights differ by 1e-06"):
        gpu_checks._compare("mirrored", "GPU", 1, run, other)
    with pytest.raises(AssertionError, match="CPU:0"):
        gpu_checks._compare("mirrored", "GPU", 1, {**run, "names": ["CPU:0"]}, run)


def test_a_rehearsal_says_so_and_never_lies_with_the_real_reports(tmp_path, capsys, monkeypatch):
    answer = {"state": "passed", "rows": [["dtype", "loss"], ["float16", "1.0"]], "seconds": 2.0}
    failed = {"state": "FAILED", "why": "AssertionError: weights differ", "seconds": 1.0}
    monkeypatch.setattr(gpu_check, "run_check", lambda *_: answer)
    assert gpu_check.main(["--pretend", "2", "--out", str(tmp_path), "half-precision"]) == 0
    (path,) = tmp_path.iterdir()
    text = path.read_text()
    assert "rehearsal on logical CPU devices" in text and "| float16 | 1.0 |" in text
    assert "Devices: 2 logical CPUs" in text and path.name.endswith("-2x-logical-cpu.md")
    monkeypatch.setattr(gpu_check, "run_check", lambda *_: failed)
    assert gpu_check.main(["--pretend", "2", "--out", str(tmp_path), "resume"]) == 1
    assert "| resume | FAILED | 1 | AssertionError: weights differ |" in path.read_text()
    with pytest.raises(SystemExit):
        gpu_check.main(["--pretend", "2"])
    assert "another folder" in capsys.readouterr().err
    for report in Path(gpu_check.FOLDER).glob("*.md"):
        assert "rehearsal" not in report.read_text(), f"{report}: no GPU took part"


def test_without_a_gpu_it_is_one_line_and_status_2(fake_gpus):
    fake_gpus()
    command = [sys.executable, "-m", "benchmarks.gpu_check"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    said = "gpu-check: no GPU here, so there is nothing to check\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)
    fake_gpus("Tesla T4", visible="4")
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2 and "names 4, which isn't on this machine" in done.stderr


def test_an_answer_is_json(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["x", "two-workers", "GPU", "1"])
    gpu_checks.main()
    answer = json.loads(capsys.readouterr().out)
    assert answer["state"] == "not run" and answer["why"] == "two workers need two GPUs"
