"""Cluster specifications and TF_CONFIG: what is built, read, and found wrong. No process starts."""

import contextlib
import io
import json
import shlex
import socket
import subprocess
from pathlib import Path

import pytest
from tables import read_groups

from distlab.cli import main
from utils import tf_config as cc
from utils.errors import DistributedError
from utils.tf_config import (
    ClusterSpec,
    TaskConfig,
    build,
    diagnose,
    diagnose_cluster,
    is_right,
    lint,
    lint_together,
)

TABLE = read_groups(Path(__file__).with_name("tf_configs.txt"))
ANY = "any strategy"
STRATEGIES = (ANY, "multi-worker", "parameter-server")
TWO = {"worker": ["a:2222", "b:2222"]}
PS = {"chief": ["c:2222"], "worker": ["a:2222", "b:2222"], "ps": ["d:2222"]}


def write(cluster, job="worker", index=0, **more):
    return json.dumps({"cluster": cluster, "task": {"type": job, "index": index}} | more)


def errors_of(text, strategy=None):
    return [f for f in lint(text, strategy) if f.severity == "error"]


ROWS = {name: [row.split(" | ") for row in rows] for name, rows in TABLE.items()}
WRONG = [
    *((None if name == ANY else name, *row) for name in STRATEGIES for row in ROWS[name]),
    (None, "[" * 100_000, "TF_CONFIG", "nested", "write"),
    (None, write({"worker": ["a:" + "9" * 5000]}), "cluster.worker[0]", "no port", "65535"),
]


@pytest.mark.parametrize("text", [text for (text,) in ROWS["right"]])
def test_the_documents_examples_are_right(text):
    wrong = [f for f in lint(text) if f.severity != "note" and "word for the port" not in f.what]
    assert wrong == [] and is_right(lint(text))
    assert cc.parse_tf_config(text).cluster.tasks


@pytest.mark.parametrize("case", WRONG, ids=lambda case: case[1][:50])
def test_each_mistake_is_named_with_its_place_and_cure(case):
    strategy, text, where, what, cure = case
    found = errors_of(text, strategy)
    assert any(f.where == where and what in f.what and cure in f.cure for f in found), found
    assert all(len(str(f).splitlines()) == 1 and str(f).startswith("error: ") for f in found)
    with pytest.raises(DistributedError, match="^TF_CONFIG: [^\n]*$"):
        cc.parse_tf_config(text, strategy)


@pytest.mark.parametrize("text, where, what", ROWS["warned"])
def test_what_may_work_is_a_warning(text, where, what):
    found = [f for f in lint(text) if f.severity == "warning"]
    assert [f.where for f in found][0] == where and what in found[0].what and found[0].cure
    assert is_right(lint(text))


def test_a_misspelled_job_is_not_offered_as_a_task():
    found = {f.where: f for f in errors_of(write({"workers": ["a:2222"]}, "worker"))}
    assert found["task.type"].cure == "add its address"


def test_roles_are_explained_in_notes():
    def role(text):
        return [f.what for f in lint(text) if f.where == "task"][0]

    with_chief = {"chief": ["c:2222"]} | TWO
    assert "chief's duties" in role(write(TWO, "worker", 0))
    assert "trains only: worker:0" in role(write(TWO, "worker", 1))
    assert "trains only: chief:0" in role(write(with_chief, "worker", 0))
    assert "trains as the first worker" in role(write(with_chief, "chief", 0))
    assert "coordinator" in role(write(PS, "chief")) and "server" in role(write(PS, "worker"))
    assert any(
        "must run as a process that isn't listed" in f.what
        for f in lint(write({k: PS[k] for k in ("worker", "ps")}))
    )


def test_sparse_and_ipv6_that_tensorflow_takes():
    assert is_right(lint(write({"worker": {"0": "a:2222", "1": "b:2222"}})))
    assert is_right(lint(write({"worker": ["[::1]:2222", "[::1]:2223"]})))
    assert cc.split_address("[fe80::1]:2222") == ("fe80::1", "2222")
    joined = [cc.join_address(host, 2222) for host in ("fe80::1", "[fe80::1]", "node-1")]
    assert joined == ["[fe80::1]:2222", "[fe80::1]:2222", "node-1:2222"]


def test_a_strategy_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="mirrored"):
        lint(write(TWO), "mirrored")


# Members of one cluster.


def members(cluster=TWO):
    return {
        f"{job}{i}": write(cluster, job, i)
        for job, all_ in cluster.items()
        for i in range(len(all_))
    }


def said_together(texts):
    return [str(f) for name, f in lint_together(texts) if name == "together"]


def test_all_members_of_a_cluster_are_right_together():
    assert said_together(members()) == said_together(members(PS)) == []
    beside = {"evaluator": write({"evaluator": ["e:2222"]}, "evaluator")}
    assert said_together(members(PS) | beside) == []


@pytest.mark.parametrize(
    "texts, words",
    [
        ({"x": write(TWO), "y": write(TWO)}, "x and y are both worker:0"),
        ({"x": write(TWO)}, "worker:1: is in the cluster, and no configuration here is for it"),
        (
            members() | {"worker1": write({"worker": ["a:2222", "b:2223"]}, "worker", 1)},
            "cluster.worker[1]: worker0 has 'b:2222', worker1 'b:2223'",
        ),
        (
            members() | {"worker1": write({"worker": ["b:2222", "a:2222"]}, "worker", 1)},
            "cluster.worker[0]: worker0 has 'a:2222', worker1 'b:2222'",
        ),
        (
            members() | {"worker1": write({"worker": ["a:2222", "b:2222", "c:2222"]}, "worker", 1)},
            "worker0 lists 2 worker tasks, worker1 3",
        ),
        (
            {n: t for n, t in members({k: PS[k] for k in ("worker", "ps")}).items()},
            "no chief among",
        ),
    ],
)
def test_what_is_wrong_between_members_is_named(texts, words):
    assert any(words in line for line in said_together(texts)), said_together(texts)


def test_a_broken_member_is_named_and_no_other_is_called_missing():
    found = lint_together({"x": write(TWO), "y": "{"})
    assert [name for name, f in found if f.severity == "error"] == ["y"]


# Building.


@pytest.mark.parametrize("counts", [(2, 0, False), (1, 0, True), (3, 2, True), (2, 1, False)])
@pytest.mark.parametrize("hosts", [["127.0.0.1"], ["a", "b"], ["::1"]])
def test_what_is_built_is_right_and_reads_back(counts, hosts):
    cluster = cc.build_cluster(*counts, hosts=hosts, base_port=2222)
    texts = cc.build_tf_configs(cluster, evaluator=True)
    assert len(texts) == sum(counts) + 1
    errors = [f for _, f in lint_together(texts) if f.severity == "error"]
    assert errors == []
    for name, text in texts.items():
        config = cc.parse_tf_config(text)
        assert config.name == name and config.cluster == cluster and config.to_json() == text


def test_tasks_go_round_the_hosts():
    cluster = cc.build_cluster(3, 1, chief=True, hosts=["a", "b"], base_port=5000)
    assert cluster == ClusterSpec(
        chief=("a:5000",), worker=("b:5000", "a:5001", "b:5001"), ps=("a:5002",)
    )
    assert cluster.leader == ("chief", 0) and cluster.address_of("worker", 7) is None


def test_ports_are_free_and_differ():
    with cc.hold_free_ports(20) as ports:
        assert len(set(ports)) == 20
        with pytest.raises(OSError), socket.socket() as other:
            other.bind(("127.0.0.1", ports[0]))
    for one in cc.bind_ports(15, "127.0.0.1", ports):  # others may have been taken since
        one.close()


@pytest.mark.parametrize(("said", "below"), [("25000 60999", 25000), ("1024 65535", 65536)])
def test_ports_are_not_those_that_the_system_hands_out(said, below, tmp_path, monkeypatch):
    (tmp_path / "range").write_text(said)
    monkeypatch.setattr(build, "SYSTEM_PORTS", tmp_path / "range")
    ports = cc.pick_free_ports(30)
    assert len(set(ports)) == 30 and max(ports) < below


def test_ports_of_a_range_are_picked_and_too_few_are_said():
    with contextlib.ExitStack() as stack:
        bound = cc.bind_ports(3, "127.0.0.1", range(20_000, 30_000))  # so nobody else picks them
        ports = [stack.enter_context(one).getsockname()[1] for one in bound]
        bound[0].listen()
        assert cc.pick_free_ports(2, among=ports) == ports[1:]
        with pytest.raises(
            DistributedError, match="must have 3 free ports on 127.0.0.1, got .* with 2"
        ):
            cc.pick_free_ports(3, among=ports)


def test_it_agrees_with_tensorflow(tf, monkeypatch):
    """TensorFlow reads the same cluster, task and chief as we do, for every task."""
    from tensorflow.python.distribute import multi_worker_util

    for chief in (False, True):
        cluster = cc.build_cluster(2, 0, chief)
        for text in cc.build_tf_configs(cluster).values():
            monkeypatch.setenv("TF_CONFIG", text)
            resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
            config = cc.parse_tf_config(text)
            assert resolver.cluster_spec().as_dict() == cluster.jobs
            assert (resolver.task_type, resolver.task_id) == (config.job, config.index)
            place = (resolver.cluster_spec(), config.job, config.index)
            assert multi_worker_util.is_chief(*place) == config.is_chief
            view = cc.view_as_simple(config)
            view["cluster_spec"] = tf.train.ClusterSpec(view["cluster_spec"])
            simple = tf.distribute.cluster_resolver.SimpleClusterResolver(**view)
            assert simple.cluster_spec() == resolver.cluster_spec()


def test_the_slurm_view_gives_the_same_cluster(tf, monkeypatch):
    cluster = ClusterSpec(worker=("n01:8888", "n02:8888", "n03:8888"))
    view = cc.view_as_slurm(TaskConfig(cluster, "worker", 2))
    for name, value in view.items():
        monkeypatch.setenv(name, value)
    resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(
        gpus_per_node=1, gpus_per_task=1, auto_set_gpu=False
    )
    assert resolver.cluster_spec().as_dict() == cluster.jobs
    assert resolver.get_task_info() == ("worker", 2)


# The command.


def test_build_prints_one_object_per_task_that_lints_right(capsys, monkeypatch):
    assert main("tf-config build --workers 2 --ps 1 --host h --base-port 7000".split()) == 0
    text = capsys.readouterr().out
    tasks = [json.loads(line)["task"] for line in text.splitlines()]
    assert [(t["type"], t["index"]) for t in tasks] == [("worker", 0), ("worker", 1), ("ps", 0)]
    assert json.loads(text.splitlines()[0])["cluster"]["ps"] == ["h:7002"]
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert main(["tf-config", "lint", "-"]) == 0
    assert "3 configurations: right" in capsys.readouterr().out


def test_export_is_a_line_for_a_shell(capsys, tmp_path):
    assert main("tf-config build --task worker:1 --export".split()) == 0
    line = capsys.readouterr().out
    shown = subprocess.run(
        ["sh", "-c", line + 'printf %s "$TF_CONFIG"'], capture_output=True, text=True, timeout=120
    ).stdout
    assert (
        cc.parse_tf_config(shown).name
        == "worker:1"
        == cc.parse_tf_config(shlex.split(line)[1].partition("=")[2]).name
    )
    (tmp_path / "set.sh").write_text(line)
    assert main(["tf-config", "lint", str(tmp_path / "set.sh")]) == 0


def test_lint_takes_text_split_text_files_and_the_variable(capsys, monkeypatch, tmp_path):
    good, bad = write(TWO), write(TWO, "worker", 5)
    assert main(["tf-config", "lint", good]) == 0
    assert main(["tf-config", "lint", *good.split()]) == 0
    assert main(["tf-config", "lint", bad]) == 1
    monkeypatch.setenv("TF_CONFIG", bad)
    assert main(["tf-config", "lint"]) == 1
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for index, path in enumerate(paths):
        path.write_text(json.dumps(json.loads(write(TWO, "worker", index)), indent=2))
    assert main(["tf-config", "lint", *map(str, paths)]) == 0
    paths[1].write_text(paths[0].read_text())
    capsys.readouterr()
    assert main(["tf-config", "lint", *map(str, paths), "--json"]) == 1
    record = json.loads(capsys.readouterr().out)
    assert not record["ok"] and record["sources"] == [str(p) for p in paths]
    assert any("both worker:0" in f["what"] for f in record["findings"])


# What diagnose does without a log of its own.


def test_what_is_unknown_is_not_guessed():
    assert (
        diagnose("Traceback (most recent call last):\nZeroDivisionError: division by zero") is None
    )
    assert diagnose("Traceback (most recent call last):\nX: y", write(TWO)) is None
    assert diagnose("step 1 of 2 replicas", write(TWO)) is None and diagnose("") is None
    assert diagnose_cluster({"worker:0": "step 1", "worker:1": ""}) is None


def test_a_silent_task_and_a_wrong_configuration():
    assert diagnose("", write(TWO)).name == "silent"
    found = diagnose("something else", write(TWO, "worker", 2))
    assert found.name == "configuration" and "out of range" in found.cause


def test_a_cause_comes_before_its_consequences():
    gone = "UnavailableError: Collective ops is aborted by: Socket closed"
    cause = "UnknownError: Could not start gRPC server"
    assert diagnose_cluster({"worker:0": gone, "worker:1": cause}).task == "worker:1"
    assert diagnose_cluster({"worker:0": gone, "worker:1": ""}).name == "dead-peer"


def test_a_task_that_trains_gets_what_keras_on_jax_reads():
    cluster = cc.build_cluster(workers=2, chief=True, hosts=["a", "b", "c"])
    told = TaskConfig(cluster, "worker", 1).to_variables()
    addresses = [*cluster.chief, *cluster.worker]
    assert told["KERAS_DISTRIBUTION_JOB_ADDRESSES"] == ",".join(addresses)
    assert told["KERAS_DISTRIBUTION_NUM_PROCESSES"] == "3"
    assert told["KERAS_DISTRIBUTION_PROCESS_ID"] == "2"
    assert told["JAX_COORDINATOR_ADDRESS"] == addresses[0]
    served = cc.build_cluster(workers=1, ps=1, hosts=["a", "b", "c"])
    for job, index in served.tasks:
        assert TaskConfig(served, job, index).to_variables().keys() == {"TF_CONFIG"}
