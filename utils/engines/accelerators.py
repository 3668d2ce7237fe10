"""Dividing this machine's GPUs among the workers that run on it."""

import os
import shutil
import subprocess

from ..errors import InputError

VISIBLE = "CUDA_VISIBLE_DEVICES"


def list_gpus() -> list[str]:
    """Return the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them.

    Asks that variable, then `nvidia-smi`; TensorFlow is not imported.
    """
    named = os.environ.get(VISIBLE)
    if named is not None:
        return [each.strip() for each in named.split(",") if each.strip() not in ("", "-1")]
    if shutil.which("nvidia-smi") is None:
        return []
    try:
        asked = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return []
    found = [line for line in asked.stdout.splitlines() if line.startswith("GPU ")]
    return [str(index) for index in range(len(found))]


def divide_gpus(gpus: list[str], workers: int, each: int | None = None) -> list[list[str]]:
    """Return the GPUs of each worker: equal, contiguous parts; all empty where there are none.

    With `each`, a worker gets as many, and the rest is left alone. Raises InputError where there
    are too few: two processes cannot take part in one NCCL all-reduce with the same GPU.
    """
    if each and len(gpus) < workers * each:
        raise InputError(
            f"gpus {each}: {workers} workers need {workers * each}, and this machine has "
            f"{len(gpus)}; ask for fewer, or pass --gpus none to train on the CPU"
        )
    if gpus and len(gpus) < workers:
        raise InputError(
            f"{workers} workers, {len(gpus)} GPUs: start at most {len(gpus)} on this machine, "
            "or pass --gpus none to train on the CPU"
        )
    each = each or len(gpus) // workers
    return [gpus[each * index : each * (index + 1)] for index in range(workers)]
