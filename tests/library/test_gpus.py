"""GPUs that a process may use, and who gets which: plain functions, on lists that are made up."""

import pytest
from gpu_fakes import MIG

from distlab.cli.starting import read_local_workers, read_workers
from distlab.errors import CourseError
from utils.devices import choose_all_reduce, choose_devices
from utils.engines import RunSettings, run_program
from utils.errors import InputError
from utils.gpus import (
    Gpu,
    check_gpus_are_free,
    divide_gpus,
    explain_complaint,
    list_gpus,
    list_unseen_gpus,
    parse_driver_list,
    read_driver,
    select_gpus,
    share_gpus,
    sharing_variables,
)

H100, T4 = "NVIDIA H100 80GB HBM3", "Tesla T4"
LISTED = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5d5ba0d6-d33d)
  MIG 3g.20gb     Device  0: (UUID: MIG-c7384736-a75d)
  MIG 1g.5gb      Device  1: (UUID: MIG-a28ad590-3fda)
GPU 1: Tesla T4 (UUID: GPU-77aa0000-0000)
"""
CUT = parse_driver_list(LISTED)
FOUR = [Gpu(str(index), T4, str(index), f"GPU-{index}{index}aa") for index in range(4)]


def test_the_driver_lists_slices_in_place_of_the_gpu_that_they_are_cut_from():
    a100 = "NVIDIA A100-SXM4-40GB"
    assert CUT == [
        Gpu("MIG-c7384736-a75d", f"{a100} MIG 3g.20gb", "0", "GPU-5d5ba0d6-d33d"),
        Gpu("MIG-a28ad590-3fda", f"{a100} MIG 1g.5gb", "0", "GPU-5d5ba0d6-d33d"),
        Gpu("1", T4, "1", "GPU-77aa0000-0000"),
    ]
    assert parse_driver_list("NVIDIA-SMI has failed because it couldn't communicate") == []


@pytest.mark.parametrize(
    "named, driver, expected",
    [
        (None, FOUR, ["0", "1", "2", "3"]),
        (None, [], []),
        ("", FOUR, []),
        ("-1", FOUR, []),
        ("NoDevFiles", FOUR, []),
        ("2", FOUR, ["2"]),
        (" 3, 1", FOUR, ["3", "1"]),
        ("02", FOUR, ["02"]),
        ("1,-1,2", FOUR, ["1"]),  # as CUDA has it
        ("GPU-22", FOUR, ["GPU-22"]),
        ("GPU-22,0", FOUR, ["GPU-22", "0"]),
        (None, CUT, ["MIG-c7384736-a75d", "MIG-a28ad590-3fda", "1"]),
        ("0", CUT, ["MIG-c7384736-a75d", "MIG-a28ad590-3fda"]),
        ("1", CUT, ["1"]),
        ("GPU-5d", CUT, ["MIG-c7384736-a75d", "MIG-a28ad590-3fda"]),
        ("MIG-a2", CUT, ["MIG-a28ad590-3fda"]),
        ("MIG-GPU-5d5ba0d6/7/0", CUT, ["MIG-GPU-5d5ba0d6/7/0"]),
        ("7,GPU-1", [], ["7", "GPU-1"]),  # no driver that can be asked
    ],
)
def test_which_gpus_cuda_visible_devices_names(named, driver, expected):
    assert select_gpus(named, driver) == expected


def test_the_fake_driver_is_asked(fake_gpus, monkeypatch):
    fake_gpus(H100, T4)
    assert [(gpu.name, gpu.kind) for gpu in read_driver()] == [("0", H100), ("1", T4)]
    assert (list_gpus(), list_unseen_gpus()) == (["0", "1"], [H100, T4])
    fake_gpus(H100, T4, visible="1")
    assert list_gpus() == ["1"]
    fake_gpus(H100, T4, visible="")
    assert (list_gpus(), list_unseen_gpus()) == ([], [])
    fake_gpus(H100, T4, slices=MIG)
    assert read_workers("gpu") == (None, 4) and read_local_workers("gpu") == 4
    assert list_gpus() == ["MIG-00cc-dd", "MIG-11cc-dd", "MIG-22cc-dd", "1"]
    monkeypatch.setenv("PATH", "/nowhere")
    assert (read_driver(), list_gpus()) == ([], [])
    with pytest.raises(
        CourseError, match="--workers gpu needs a GPU, and this machine has none. Give a number"
    ):
        read_workers("gpu")


# --- how workers of one machine divide them --------------------------------------------------

NAMES = [str(index) for index in range(8)]
SHARES = {  # (GPUs, workers) -> what each worker sees, or None for an error
    **dict.fromkeys([(0, 1), (0, 2), (0, 3), (0, 4)], "cpu"),
    **dict.fromkeys([(1, 2), (1, 3), (1, 4), (2, 3), (2, 4)]),
    **{(1, 1): ["0"], (2, 1): ["0,1"], (2, 2): ["0", "1"], (4, 1): ["0,1,2,3"]},
    **{(4, 2): ["0,1", "2,3"], (4, 3): ["0", "1", "2"], (4, 4): ["0", "1", "2", "3"]},
    **{(8, 1): ["0,1,2,3,4,5,6,7"], (8, 2): ["0,1,2,3", "4,5,6,7"]},
    **{(8, 3): ["0,1", "2,3", "4,5"], (8, 4): ["0,1", "2,3", "4,5", "6,7"]},
}


@pytest.mark.parametrize("machine, workers", SHARES)
def test_what_the_workers_of_a_local_cluster_and_of_distlab_run_see(
    machine, workers, fake_gpus, monkeypatch
):
    fake_gpus(*[H100] * machine)
    expected = SHARES[machine, workers]
    if expected is None:
        words = f"{workers} workers need {workers} GPUs, and this machine has {machine}"
        for way_out, ask in (
            ('devices="cpu" (--device cpu)', lambda: share_gpus(list_gpus(), workers)),
            ("--gpus none", lambda: RunSettings(workers=workers).divide_gpus(workers)),
        ):
            with pytest.raises(InputError, match=words) as refused:
                ask()
            assert f"Start at most {machine} on this machine, or pass {way_out}" in str(
                refused.value
            )
        return
    shares, divided = share_gpus(list_gpus(), workers), RunSettings().divide_gpus(workers)
    if expected == "cpu":
        assert (shares, divided) == ({}, [[]] * workers)
        return
    assert [shares[f"worker {i}"]["CUDA_VISIBLE_DEVICES"] for i in range(workers)] == expected
    assert [",".join(part) for part in divided] == expected
    for variables in shares.values():
        assert variables["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
        assert variables["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_servers_and_coordinator_get_none_and_their_workers_one_each():
    shares = share_gpus(NAMES, 2, ps=2)
    seen = {task: one["CUDA_VISIBLE_DEVICES"] for task, one in shares.items()}
    assert seen == {"worker 0": "0", "worker 1": "1", "ps 0": "", "ps 1": "", "chief 0": ""}
    assert share_gpus(NAMES, 1, ps=1, each=4)["worker 0"]["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"


def test_cpu_hides_all_and_gpu_needs_one():
    assert share_gpus(NAMES, 2, 1, devices="cpu") == {
        task: {"CUDA_VISIBLE_DEVICES": ""} for task in ("worker 0", "worker 1", "ps 0", "chief 0")
    }
    assert share_gpus([], 2, each=2) == {}


def test_each_worker_gets_as_many_as_asked_and_one_slice_at_most():
    assert divide_gpus(NAMES, 2, 3) == [["0", "1", "2"], ["3", "4", "5"]]
    slices = ["MIG-a", "MIG-b", "MIG-c", "MIG-d"]
    assert divide_gpus(slices, 2) == [["MIG-a"], ["MIG-b"]]


def test_the_users_own_choices_stay():
    assert sharing_variables({}) == {
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    assert (
        sharing_variables({"TF_FORCE_GPU_ALLOW_GROWTH": "false", "CUDA_VISIBLE_DEVICES": "1"}) == {}
    )
    assert "CUDA_DEVICE_ORDER" not in sharing_variables({"CUDA_DEVICE_ORDER": "FASTEST_FIRST"})


def test_gpus_that_others_fill_are_one_line(fake_gpus, tmp_path):
    fake_gpus(H100, H100, used_mib=(81_000, 5))
    check_gpus_are_free(["1"])
    for names in (["0", "1"], ["GPU-00aa"]):
        with pytest.raises(InputError) as refused:
            check_gpus_are_free(names)
        assert str(refused.value) == (
            "GPU 0 has 81,000 of its 81,559 MiB in use, by process 4711 (python train.py). End "
            "that program, name other GPUs in CUDA_VISIBLE_DEVICES, or train with --device cpu"
        )
    fake_gpus(H100, H100, used_mib=(70_000, 81_000))
    check_gpus_are_free(["0"])
    with pytest.raises(InputError, match="GPU 1 has 81,000 of its 81,559 MiB in use. End"):
        check_gpus_are_free(["0", "1"])
    with pytest.raises(InputError, match="GPU 1 has .* or train with --gpus none"):
        run_program(["true"], RunSettings(workers=2, logs=str(tmp_path)))


# --- the choice ------------------------------------------------------------------------------

SEVERAL, ONE = {"usual": 2, "most": 16}, {"usual": 1, "most": 1}
CHOICES = [  # devices, replicas, GPUs, strategy -> kind, number
    ("auto", None, 0, SEVERAL, ("CPU", 2)),
    ("auto", None, 0, ONE, ("CPU", 1)),
    ("auto", 4, 0, SEVERAL, ("CPU", 4)),
    ("cpu", None, 0, SEVERAL, ("CPU", 2)),
    ("auto", None, 1, SEVERAL, ("GPU", 1)),
    ("auto", None, 8, SEVERAL, ("GPU", 8)),
    ("auto", None, 8, ONE, ("GPU", 1)),
    ("gpu", None, 8, ONE, ("GPU", 1)),
    ("auto", 1, 4, SEVERAL, ("GPU", 1)),
    ("auto", 4, 4, SEVERAL, ("GPU", 4)),
    ("gpu", 2, 4, SEVERAL, ("GPU", 2)),
    ("cpu", None, 4, SEVERAL, ("CPU", 2)),
    ("cpu", 8, 4, SEVERAL, ("CPU", 8)),
    ("cpu", None, 4, ONE, ("CPU", 1)),
]


@pytest.mark.parametrize("devices, replicas, number, strategy, expected", CHOICES)
def test_what_a_strategy_takes(devices, replicas, number, strategy, expected):
    assert choose_devices(devices, replicas, number, **strategy) == expected


ALL, WORKERS, CENTRAL = (
    ("nccl", "ring", "hierarchical", "one-device"),
    ("nccl", "ring"),
    ("one-device",),
)


@pytest.mark.parametrize(
    "asked, offered, kind, no_nccl, expected",
    [
        ("auto", ALL, "GPU", "", "nccl"),
        ("auto", ALL, "CPU", "", "one-device"),
        ("auto", ALL, "GPU", "sliced", "one-device"),
        ("auto", WORKERS, "GPU", "sliced", "ring"),
        ("auto", WORKERS, "CPU", "", "ring"),
        ("auto", WORKERS, "GPU", "", "nccl"),
        ("auto", CENTRAL, "GPU", "", "one-device"),
        ("auto", (), "GPU", "", None),
        ("ring", ALL, "GPU", "", "ring"),
        ("hierarchical", ALL, "CPU", "", "hierarchical"),
        ("one-device", ALL, "GPU", "", "one-device"),
        ("nccl", ALL, "GPU", "", "nccl"),
    ],
)
def test_how_gradients_are_added_up(asked, offered, kind, no_nccl, expected):
    assert choose_all_reduce(asked, offered, "x", kind, no_nccl) == expected


@pytest.mark.parametrize(
    "line, said, cure",
    [
        (
            "E0000 00:00:1795.1 4234 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA "
            "driver version is insufficient for CUDA runtime version",
            "failed call to cuInit",
            "525 or newer",
        ),
        (
            "W0000 gpu_device.cc:2431] Cannot dlopen some GPU libraries. Please make sure",
            "Cannot dlopen some GPU libraries",
            "pip install -e '.[gpu]'",
        ),
        (
            "I0000 00:00:1795.1 4 cudart_stub.cc:31] Could not find cuda drivers on your machine, "
            "GPU will not be used.",
            "Could not find cuda drivers",
            "Install NVIDIA's driver",
        ),
        (
            "E0000 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error: UNKNOWN ERROR "
            "(303)",
            "failed call to cuInit: INTERNAL",
            "Try nvidia-smi",
        ),
    ],
)
def test_what_tensorflow_says_is_quoted_with_the_fix(line, said, cure):
    log = f"WARNING: All log messages before\n{line}\nI0000 cpu_feature_guard.cc:227] AVX2"
    found = explain_complaint(log)
    assert found.startswith(f'"{said}') and cure in found and ".cc:" not in found
    assert "doesn't say why" in explain_complaint("nothing about it")
