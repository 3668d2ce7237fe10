"""This machine's GPUs: which ones a process may use, who else uses them, how workers divide them.

It asks CUDA_VISIBLE_DEVICES and NVIDIA's driver (`nvidia-smi`), and doesn't start CUDA:
a process that only starts others must not take a GPU, and a fork of one that did can't use it.
Which of them a strategy trains on is chosen in `devices`.
https://docs.nvidia.com/cuda/cuda-c-programming-guide/ (environment variables, MIG)
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .errors import InputError, shorten
from .measure import count

VISIBLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"  # TensorFlow then takes a GPU's memory only as it needs it
HIDE_ALL = {"", "-1", "none", "void", "nodevfiles"}  # Slurm writes NoDevFiles
ANSWER_SECONDS, IMPORT_SECONDS = 60.0, 120.0
FULL = 0.95  # of a GPU's memory: with less to spare, cuDNN alone doesn't fit
MEMORY = "--query-gpu=index,uuid,memory.used,memory.total"
PROCESSES = "--query-compute-apps=gpu_uuid,pid,process_name"


@dataclass(frozen=True)
class Gpu:
    """A GPU, or one MIG slice of it, as the driver lists it.

    `name` is what CUDA_VISIBLE_DEVICES calls it: the GPU's index, or a slice's UUID. `index` and
    `uuid` belong to the whole GPU.
    """

    name: str
    kind: str
    index: str
    uuid: str


def read_driver() -> list[Gpu]:
    """Return the GPUs that NVIDIA's driver lists, slices in place of a GPU cut by MIG."""
    told = _ask_driver("-L")
    return parse_driver_list(told) if told else []


def parse_driver_list(text: str) -> list[Gpu]:
    """Return the GPUs in the output of `nvidia-smi -L`."""
    found: list[Gpu] = []
    for line in text.splitlines():
        if whole := re.match(r"GPU (\d+): (.+?) \(UUID: ([\w-]+)\)", line):
            index, kind, uuid = whole.groups()
            found.append(Gpu(index, kind, index, uuid))
        elif (cut := re.match(r"\s+(MIG \S+) .*\(UUID: (MIG-\S+?)\)", line)) and found:
            gpu = found[-1]
            if gpu.name == gpu.index:
                found.pop()  # only its slices can be used
            kind = f"{gpu.kind.partition(' MIG ')[0]} {cut[1]}"
            found.append(Gpu(cut[2], kind, gpu.index, gpu.uuid))
    return found


def list_gpus() -> list[str]:
    """Return the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them.

    Raises InputError if that variable names one that isn't here.
    """
    return select_gpus(os.environ.get(VISIBLE), read_driver())


def list_unseen_gpus() -> list[str]:
    """Return the kinds of GPUs that the driver lists and CUDA_VISIBLE_DEVICES doesn't hide."""
    driver = read_driver()
    return [gpu.kind for gpu in driver] if select_gpus(os.environ.get(VISIBLE), driver) else []


def select_gpus(named: str | None, driver: Sequence[Gpu]) -> list[str]:
    """Return the names in `named`, a value of CUDA_VISIBLE_DEVICES; None takes all of `driver`.

    Like CUDA, it stops at -1. A GPU that MIG has cut stands for its slices. If the driver can't be
    asked, names stay unchanged.
    """
    if named is None:
        return [gpu.name for gpu in driver]
    chosen: dict[str, str] = {}  # its name here -> its name in the variable
    for word in map(str.strip, named.split(",")):
        if word.lower() in HIDE_ALL:
            break
        found = _find_named(word, driver)
        if not found:
            here = ", ".join(dict.fromkeys(gpu.index for gpu in driver))
            raise InputError(
                f"{VISIBLE}={shorten(named)} names {word}, which isn't on this machine. It has "
                f"{here}. Correct the variable, or unset it to use all"
            )
        if found.keys() & chosen.keys():
            raise InputError(f"{VISIBLE}={shorten(named)} names {word} twice. Name it once")
        chosen |= found
    return list(chosen.values())


def _find_named(word: str, driver: Sequence[Gpu]) -> dict[str, str]:
    """Return the GPU, or the slices, that `word` means: an index, or the beginning of one UUID.

    Keys are the driver's names. A whole GPU keeps the word, since CUDA may count otherwise.
    """
    if not driver or word.startswith("MIG-GPU-"):  # drivers before 470 name slices like this
        return {word: word}
    if word.isdecimal():
        found = [gpu for gpu in driver if gpu.index == str(int(word))]
    elif word.startswith("MIG-"):
        found = [gpu for gpu in driver if gpu.name.startswith(word)]
        found = found if len(found) == 1 else []
    else:
        found = [gpu for gpu in driver if gpu.uuid.startswith(word)]
        found = found if len({gpu.index for gpu in found}) == 1 else []
    return {gpu.name: word if gpu.name == gpu.index else gpu.name for gpu in found}


def divide_gpus(
    gpus: Sequence[str], workers: int, each: int | None = None, way_out: str = "--gpus none"
) -> list[list[str]]:
    """Return the GPUs of each of `workers` on one machine: equal, contiguous parts.

    With `each`, a worker gets that many and the rest stays unused. All parts are empty if there
    are no GPUs and `each` is None. A worker gets one MIG slice at most, since CUDA lets a
    process use only one. `way_out` is the option that keeps the workers on the CPU. Raises
    InputError if there are too few: two processes on one GPU share its memory, and NCCL
    refuses them.
    """
    sliced = any(name.startswith("MIG-") for name in gpus)
    if each and sliced and each > 1:
        raise InputError(f"A process can use one MIG slice, got {each} for each worker. Ask for 1.")
    wanted = workers * (each or 1)
    if len(gpus) < wanted and (gpus or each):
        each_words = f" with {each} GPUs each" if each and each > 1 else ""
        fewer = len(gpus) // (each or 1)
        start = f"Start at most {fewer} on this machine, or pass" if fewer else "Pass"
        raise InputError(
            f"{count(workers, 'worker')}{each_words} need {count(wanted, 'GPU')}, and this machine "
            f"has {len(gpus)}. {start} {way_out} to train on the CPU."
        )
    each = each or (1 if sliced else len(gpus) // workers)
    return [list(gpus[each * index : each * (index + 1)]) for index in range(workers)]


def share_gpus(
    gpus: Sequence[str], workers: int, ps: int = 0, each: int | None = None, devices: str = "auto"
) -> dict[str, dict[str, str]]:
    """Return what the environment of each task of a cluster says of GPUs, by the task's name.

    Workers divide `gpus` as `divide_gpus` does; in a parameter-server cluster, which trains on one
    device in each worker, they get one each. Servers and the coordinator get none. `devices` "cpu"
    hides them all; without GPUs, "auto" says nothing and "gpu" raises InputError.
    """
    worker_names = [f"worker {index}" for index in range(workers)]
    others = [f"ps {index}" for index in range(ps)] + ["chief 0"] * bool(ps)
    if devices == "cpu":
        return {name: {VISIBLE: ""} for name in worker_names + others}
    if devices == "auto" and not gpus:
        return {}
    each = each or (1 if ps or not gpus else None)
    parts = divide_gpus(gpus, workers, each, 'devices="cpu" (--device cpu)')
    own = dict(zip(worker_names, parts, strict=True)) | dict.fromkeys(others, [])
    return {name: gpu_variables(part) for name, part in own.items()}


def gpu_variables(own: Sequence[str]) -> dict[str, str]:
    """Return the variables of a process that may use the GPUs `own`, and only those."""
    return {VISIBLE: ",".join(own), **sharing_variables()}


def sharing_variables(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables of processes that share GPUs: memory growth, and the driver's order.

    CUDA counts the fastest GPU first unless it is told to count as the driver does. If the user
    has named GPUs, that order stays.
    """
    found = {} if GROWTH in environment else {GROWTH: "true"}
    return found if {VISIBLE, ORDER} & {*environment} else found | {ORDER: "PCI_BUS_ID"}


def check_gpus_are_free(names: Sequence[str], way_out: str = "--device cpu") -> None:
    """Raise InputError, naming who uses it, if the memory of a GPU in `names` is full."""
    rows = [line.split(", ") for line in _ask_driver(MEMORY).splitlines()]
    for index, uuid, used, total in (row for row in rows if len(row) == 4):
        if not any(name == index or uuid.startswith(name) for name in names):
            continue
        if used.isdecimal() and total.isdecimal() and int(used) >= FULL * int(total):
            raise InputError(
                f"GPU {index} has {int(used):,} of its {int(total):,} MiB in use"
                f"{_name_users(uuid)}. End that program, name other GPUs in {VISIBLE}, or train "
                f"with {way_out}"
            )


def _name_users(uuid: str) -> str:
    """Return ", by process 12 (python)", or nothing if the driver doesn't say (containers)."""
    rows = [line.split(", ", 2) for line in _ask_driver(PROCESSES).splitlines()]
    users = [f"{row[1]} ({row[2]})" for row in rows if len(row) == 3 and row[0] == uuid]
    return f", by process {', '.join(users[:3])}" if users else ""


def _ask_driver(question: str) -> str:
    """Return what `nvidia-smi` answers, "" if there is none or it fails."""
    if shutil.which("nvidia-smi") is None:
        return ""
    words = ["nvidia-smi", question]
    if question.startswith("--query"):
        words.append("--format=csv,noheader,nounits")
    try:
        asked = subprocess.run(words, capture_output=True, text=True, timeout=ANSWER_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return asked.stdout if asked.returncode == 0 else ""


def ask_why_unseen() -> str:
    """Return what TensorFlow says when it looks for GPUs and finds none, and what to do."""
    words = [sys.executable, "-c", "import tensorflow as t; t.config.list_physical_devices('GPU')"]
    loud = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "0"}
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=IMPORT_SECONDS, env=loud
        )
    except subprocess.TimeoutExpired:
        return f"it gave no answer within {IMPORT_SECONDS:g} s. Try nvidia-smi"
    return explain_complaint(done.stderr)


COMPLAINTS = (  # what TensorFlow's log says -> what to do
    (
        r"driver version is insufficient|SYSTEM_DRIVER_MISMATCH|UNSUPPORTED_PTX_VERSION"
        r"|COMPAT_NOT_SUPPORTED|does not match DSO version",
        "Update NVIDIA's driver: CUDA 12 needs 525 or newer",
    ),
    (
        r"Cannot dlopen some GPU libraries|Could not load dynamic library",
        "Install CUDA's libraries: pip install -e '.[gpu]'",
    ),
    (r"Could not find cuda drivers", "Install NVIDIA's driver, or give the container its GPUs"),
    (r"failed call to cuInit|CUDA_ERROR|CUDA error", "Try nvidia-smi, and restart the machine"),
)


def explain_complaint(log: str) -> str:
    """Return the line of TensorFlow's `log` that says why it has no GPU, and what to do."""
    for pattern, cure in COMPLAINTS:
        for line in log.splitlines():
            if re.search(pattern, line, re.IGNORECASE):
                said = re.sub(r"^.*?\.(cc|h|cu):\d+\] ", "", line).strip()
                return f'"{shorten(said, 160)}". {cure}'
    return "it doesn't say why. Install CUDA's libraries: pip install -e '.[gpu]'"
