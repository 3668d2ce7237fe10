"""Strategies on GPUs that aren't there: what each takes, says, and leaves alone."""

import json
import os
import subprocess

import pytest
from gpu_fakes import MIG

from utils import devices, training
from utils.cluster import LocalCluster
from utils.devices import explain_no_gpu, use_logical_devices
from utils.errors import InputError
from utils.multi_worker import choose_worker_devices
from utils.placement import Devices, describe_strategy
from utils.strategies import SINGLE_MACHINE, make_strategy

H100, T4 = "NVIDIA H100 80GB HBM3", "Tesla T4"
CPUS = "CPU:0, CPU:1 (logical CPU), all-reduce one-device"


@pytest.fixture
def machine(fake_gpus, tf):
    """Like `fake_gpus`, and TensorFlow in this process sees them too."""
    fake_gpus()
    fake_gpus.replace_lists(tf)
    return fake_gpus


def name_range(number: int) -> str:
    return ", ".join(f"GPU:{index}" for index in range(number))


def say(name: str, *arguments, **settings) -> str:
    return str(describe_strategy(make_strategy(name, *arguments, **settings)))


# --- the table: strategy by number of GPUs ---------------------------------------------------

ONE_CPU = "1 replica: CPU:0 (logical CPU)"
TABLE = {  # GPUs -> what mirrored, central-storage, and default and one-device say
    0: (f"2 replicas: {CPUS}", f"2 replicas: {CPUS}", ONE_CPU),
    1: (f"1 replica: GPU:0 ({H100})", f"1 replica: GPU:0 ({H100})", f"1 replica: GPU:0 ({H100})"),
    **{
        number: (
            f"{number} replicas: {name_range(number)} ({H100}), all-reduce nccl",
            f"{number} replicas: {name_range(number)} ({H100}), all-reduce one-device",
            f"1 replica: GPU:0 ({H100}); {number - 1} GPU{'s' * (number > 2)} unused",
        )
        for number in (2, 4, 8)
    },
}


@pytest.mark.parametrize("number", TABLE)
def test_every_strategy_takes_all_gpus_or_says_what_it_leaves(machine, number):
    machine(*[H100] * number)
    mirrored, central, one = TABLE[number]
    expected = {"mirrored": mirrored, "central-storage": central, "one-device": one, "default": one}
    assert {name: say(name) for name in SINGLE_MACHINE} == expected
    assert choose_worker_devices("auto", None, 16) == (("GPU", number) if number else ("CPU", 4))


def test_cpus_next_to_gpus_come_only_on_request_and_are_said(machine):
    machine(H100, H100)
    assert say("mirrored", devices="cpu") == f"2 replicas: {CPUS}; 2 GPUs unused"
    assert machine.limits == [0], "TensorFlow's own placement is kept off them, too"
    machine(H100, H100)
    assert say("mirrored", 4, devices="cpu").startswith("4 replicas: CPU:0, CPU:1, CPU:2, CPU:3")
    machine(H100, H100)
    assert say("default", devices="cpu") == f"{ONE_CPU}; 2 GPUs unused"
    machine(H100, H100)
    assert choose_worker_devices("cpu", None, 16) == ("CPU", 4)
    assert machine.limits[-1] == 0


def test_too_many_replicas_and_no_gpu_are_one_line(machine):
    machine(H100, H100)
    for make in (
        lambda: make_strategy("mirrored", 3),
        lambda: choose_worker_devices("auto", 3, 16),
    ):
        with pytest.raises(InputError, match="at most 2, got 3.*--replicas 2.*--device cpu"):
            make()
    machine()
    with pytest.raises(
        InputError, match="'gpu' needs a GPU: no NVIDIA driver lists a GPU.*--device cpu"
    ):
        make_strategy("mirrored", devices="gpu")
    machine(H100, visible="")
    with pytest.raises(InputError, match="CUDA_VISIBLE_DEVICES='' hides all 1 of this machine"):
        make_strategy("mirrored", devices="gpu")
    machine(H100, visible="7")
    with pytest.raises(InputError, match="CUDA_VISIBLE_DEVICES=7 names 7, which isn't"):
        make_strategy("mirrored")
    machine(H100, used_mib=(81_500,))
    with pytest.raises(InputError, match="GPU 0 has 81,500 of its 81,559 MiB in use"):
        make_strategy("mirrored")


def test_visible_devices_choose(machine):
    machine(H100, H100, H100, H100, visible="2,3")
    assert say("mirrored") == f"2 replicas: GPU:0, GPU:1 ({H100}), all-reduce nccl"
    machine(H100, H100, visible="")
    assert say("mirrored") == f"2 replicas: {CPUS}", "hidden by the user, so nothing is unused"


def test_two_kinds_are_both_named(machine):
    machine(H100, T4)
    assert say("mirrored") == f"2 replicas: GPU:0 ({H100}), GPU:1 ({T4}), all-reduce nccl"


def test_a_slice_of_mig_is_one_gpu_without_nccl(machine):
    """CUDA lets a process use the first slice only."""
    machine(H100, slices=MIG)
    assert say("mirrored") == f"1 replica: GPU:0 ({H100} {MIG[0]})"
    with pytest.raises(InputError, match="NCCL doesn't work on MIG slices. Use --all-reduce one"):
        make_strategy("mirrored", all_reduce="nccl")


def test_the_fallback_without_nccl_is_said(machine, monkeypatch):
    machine(H100, H100)
    monkeypatch.setattr("utils.strategies.why_no_nccl", lambda kinds: "no NCCL here")
    monkeypatch.setattr("utils.placement.why_no_nccl", lambda kinds: "no NCCL here")
    assert say("mirrored").endswith("all-reduce one-device; no NCCL here")


def test_a_gpu_that_tensorflow_does_not_see_is_said(machine, monkeypatch):
    machine(H100, seen=0)
    assert say("mirrored").endswith(
        f"{CPUS}; TensorFlow doesn't see this machine's {H100}: distlab doctor says why"
    )
    monkeypatch.setattr(devices, "ask_why_unseen", lambda: "the driver is too old")
    with pytest.raises(InputError, match=f"can't use the {H100} of this machine: the driver is"):
        make_strategy("mirrored", devices="gpu")


def test_tensorflow_itself_is_asked_why(fake_gpus):
    """Here it finds no driver, and says so when it is imported."""
    fake_gpus(H100)
    said = explain_no_gpu()
    assert said.startswith(f"TensorFlow can't use the {H100} of this machine: \"")
    assert "Install NVIDIA's driver" in said or "Try nvidia-smi" in said


@pytest.mark.parametrize("way", ["ring", "hierarchical", "one-device"])
def test_every_way_of_adding_up_gives_the_sum_with_any_number_of_replicas(tf, way):
    """The ring with a second number of replicas in one process fails with TensorFlow's own keys."""
    for replicas in (2, 4, 2) if way == "hierarchical" else (2, 3, 2):
        strategy = make_strategy("mirrored", replicas, all_reduce=way)
        assert describe_strategy(strategy).all_reduce == way
        assert add_up(tf, strategy) == [sum(range(replicas))] * replicas


def add_up(tf, strategy):
    """Return the sum of all replicas' numbers, as each gets it."""

    def give():
        context = tf.distribute.get_replica_context()
        return context.all_reduce("sum", tf.cast(context.replica_id_in_sync_group, "float32"))

    return [float(x) for x in strategy.experimental_local_results(tf.function(strategy.run)(give))]


def test_the_hierarchical_sum_of_an_odd_number_is_refused(tf):
    """TensorFlow's own leaves the last replica out: 0 + 1 where it is 0 + 1 + 2."""
    ops = tf.distribute.HierarchicalCopyAllReduce()
    theirs = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1", "CPU:2"], cross_device_ops=ops)
    assert add_up(tf, theirs) == [1.0] * 3
    with pytest.raises(InputError, match="even number of replicas, got 3"):
        make_strategy("mirrored", 3, all_reduce="hierarchical")


def test_gpus_get_the_collectives_of_nccl(machine):
    machine(H100, H100)
    for asked, hint in (("auto", "NCCL"), ("nccl", "NCCL"), ("ring", "RING")):
        ops = make_strategy("mirrored", all_reduce=asked).extended._cross_device_ops
        assert ops._options.implementation.value == hint


def test_many_devices_are_abridged():
    names = tuple(f"worker {i} GPU:0" for i in range(12))
    text = str(Devices(names, (H100,) * 12, "nccl"))
    assert text.startswith("12 replicas: worker 0 GPU:0, ") and "…, worker 11 GPU:0 (" in text
    assert text.count("GPU:0") == 8


# --- runs ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("untested")
def test_a_run_names_its_devices_in_report_events_and_checkpoint(machine, tmp_path):
    machine(H100)
    events, settings = [], {"model": "mlp", "max_examples": 128, "checkpoint_dir": tmp_path}
    report = training.train(
        strategy="mirrored", devices="cpu", epochs=1, on_event=events.append, **settings
    )
    where = f"2 replicas: {CPUS}; 1 GPU unused"
    assert where in str(report)
    found = json.loads(report.to_json())
    (start,) = [event for event in events if event["event"] == "start"]
    for record in (found, start):
        assert record["devices"] == ["CPU:0", "CPU:1"]
        assert record["device_kinds"] == ["logical CPU"] * 2
        assert (record["all_reduce"], record["unused_gpus"]) == ("one-device", 1)
    machine()
    training.train(strategy="one-device", epochs=2, on_event=events.append, **settings)
    assert [event["devices"] for event in events if event["event"] == "restore"] == [where]


def read_environment():
    names = "CUDA_VISIBLE_DEVICES", "TF_FORCE_GPU_ALLOW_GROWTH"
    return [os.environ.get(name) for name in names]


def test_the_processes_of_a_local_cluster_see_their_own(fake_gpus, launcher):
    fake_gpus(*[H100] * 4)

    def run(*sizes, **settings):
        return LocalCluster(*sizes, launcher=launcher, **settings).run(read_environment, echo=False)

    assert run(2) == [["0,1", "true"], ["2,3", "true"]]
    assert run(2, 0, 1) == [["0", "true"], ["1", "true"]]
    assert run(1, 1) == ["", "true"], "the coordinator"
    assert run(5, devices="cpu")[4][0] == ""
    assert run(1, environment={"CUDA_VISIBLE_DEVICES": "3"}) == [["3", "true"]]
    with pytest.raises(InputError, match='5 workers need 5 GPUs.*has 4.*devices="cpu"'):
        run(5)
    with pytest.raises(InputError, match="2 workers with 3 GPUs each need 6 GPUs"):
        run(2, 0, 3)
    fake_gpus()
    assert [growth for _, growth in run(2)] == [None, None]


# --- notebooks -------------------------------------------------------------------------------

SET_UP = """
from utils.environment import quiet_tensorflow
with quiet_tensorflow():
    import tensorflow as tf
from utils.devices import use_logical_devices
print(use_logical_devices(2), use_logical_devices(3))
import os, subprocess
from utils.cluster import LocalCluster
from utils.gpus import list_gpus
print(repr(os.environ.get("CUDA_VISIBLE_DEVICES")), list_gpus(), LocalCluster(3)._share_gpus())
"""


@pytest.mark.parametrize("number, sentence", [(0, ""), (1, "don't see the 1 GPU.\n")])
def test_a_notebook_runs_on_logical_cpus_everywhere(fake_gpus, write_warm, number, sentence):
    """Its set-up cell, in a process: said once, and hidden from what the notebook starts too."""
    fake_gpus(*[H100] * number)
    done = subprocess.run(write_warm(SET_UP), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-1500:]
    *said, names, hidden = done.stdout.splitlines(keepends=True)
    assert names == "['CPU:0', 'CPU:1'] ['CPU:0', 'CPU:1', 'CPU:2']\n"
    assert hidden == f"{'None' if not number else repr('')} [] {{}}\n"
    assert "".join(said).endswith(sentence) and len(said) == bool(number)


def test_a_late_call_in_a_notebook_hides_them_as_well(machine, capsys):
    machine(H100, H100)
    assert use_logical_devices(4) == ["CPU:0", "CPU:1", "CPU:2", "CPU:3"]
    assert capsys.readouterr().out.endswith("don't see the 2 GPUs.\n")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "" and machine.limits == [0]
