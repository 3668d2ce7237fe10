"""`distlab plan` from a shell: a profile from a file, bad input, and a user's own model."""

import functools
import json

import pytest
from brief_measuring import build_briefly
from test_bad_lines import PROFILE

from distlab import cli
from distlab.cli.user_model import build_user_model
from utils.errors import DistributedError
from utils.simulate.published import FOLDER

NETWORK = "--network 100Gb/s"
PREDICTED = set("devices step_seconds low high efficiency bottleneck hours cost advice".split())


@pytest.fixture
def plan(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "profile.json").write_text(json.dumps(PROFILE))
    return lambda *words: (cli.main(["plan", *" ".join(words).split()]), *capfd.readouterr())


def test_a_profile_from_a_file(plan, tmp_path):
    line = ("--profile profile.json --devices 1,8,64-66", NETWORK)
    status, output, errors = plan(*line, "--json")
    assert status == 0, errors
    found = json.loads(output)
    assert set(found) == {"profile", "predictions", "checks"} and found["checks"] == []
    rows = found["predictions"]
    assert [row["devices"] for row in rows] == [1, 8, 64, 65, 66]
    assert all(set(row) == PREDICTED and row["hours"] is None for row in rows)
    (tmp_path / "again.json").write_text(output)  # what is printed can be read again
    assert (
        json.loads(plan("--profile again.json --devices 1", NETWORK, "--json")[1])["profile"]
        == (found["profile"])
    )
    status, table, _ = plan(*line, "--examples 1e6 --epochs 2 --price 3")
    assert status == 0 and "efficiency" in table and len(table.splitlines()) == 10
    assert "100 MB of gradients" in table and "two numbers" in table.splitlines()[-1]


def test_waiting_for_input_is_explained(plan, tmp_path):
    line = f"--profile profile.json {NETWORK} --devices 1,2"
    assert "waits for its input" not in plan(line)[1]
    slow = json.loads((tmp_path / "profile.json").read_text()) | {"input_seconds": 3.0}
    (tmp_path / "profile.json").write_text(json.dumps(slow))
    _, table, _ = plan(line)
    assert "10.0%" in table and "waits for its input" in table


def test_a_machine_brings_its_number_and_its_network(plan):
    line = ["plan", "--profile", "profile.json", "--machine", "64 H100 on 400 Gb/s", "--json"]
    assert cli.main(line) == 0


SEVEN = "plan --parameters 7e9 --layers 32 --hidden 4096 --sequence 4096 --vocabulary 50e3".split()
SEVEN += ["--tokens", "1e12", "--machine", "64 H100, 8 a node, 400Gb/s"]


def test_a_model_by_its_shape(capsys):
    assert cli.main([*SEVEN, "--price", "3", "--explain"]) == 0
    text = capsys.readouterr().out
    assert "4.2e+10 (6 N) + 6.442e+09 (attention)" in text and "400 Gb/s for each node" in text
    assert "the planner's choice" in text and "MFU" in text and "two numbers" in text
    assert cli.main([*SEVEN, "--json", "--devices", "64,128"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["devices"] for row in found["plans"]] == [64, 128]
    best = found["plans"][0]["best"]
    assert len(best) == 5 and all(row["memory_gb"] <= 80 and row["cost"] is None for row in best)


def test_a_measured_network_and_a_layout_of_ones_own(capsys):
    table = str(FOLDER / "nccl_allreduce_p4de.csv")
    assert cli.main([*SEVEN, "--network", table, "--layout", "data=8,tensor=8,zero=1"]) == 0
    text = capsys.readouterr().out
    assert "data 8 x tensor 8, ZeRO 1" in text and "two numbers" not in text
    assert "No cost without --price" in text


MODEL = """
import keras
from utils.sizes import UNITS  # a package `utils` of the user's own

def make_model():
    return keras.Sequential([keras.Input((6,)), keras.layers.Dense(UNITS), keras.layers.Dense(3)])

def make_nothing():
    return None

def fail():
    raise ValueError("no such file")
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "their_model.py").write_text(MODEL)
    (tmp_path / "utils").mkdir()
    (tmp_path / "utils" / "sizes.py").write_text("UNITS = 5\n")
    return tmp_path


def test_a_users_model_is_measured_beside_their_own_utils(project, plan, monkeypatch):
    brief = functools.partial(build_briefly, build_user_model)
    monkeypatch.setattr("distlab.cli.plan.build_user_model", brief)
    line = f"--model their_model:make_model --batch 8 --devices 1,2 {NETWORK}"
    status, output, errors = plan(line, "--json")
    assert status == 0, errors
    found = json.loads(output)
    assert found["profile"]["parameters"] == 6 * 5 + 5 + 5 * 3 + 3
    assert [check["workers"] for check in found["checks"]] == [2, 4]
    assert all(check["measured"] > 0 for check in found["checks"])


def test_what_a_users_function_does_wrong_is_one_line(project, plan):
    status, _, errors = plan("--model their_model:make_nothing")
    assert status == 2 and "must return a built keras.Model" in errors
    assert len(errors.strip().splitlines()[1:]) == 1  # the first says what is measured
    with pytest.raises(DistributedError, match="ValueError: no such file"):
        build_user_model("their_model:fail", str(project))
