"""A machine with GPUs that aren't there: what the driver lists, and what TensorFlow sees.

`nvidia-smi` is a program in a folder at the front of PATH, so other processes meet the same
machine; TensorFlow's lists are replaced in this process only.
"""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

MIG = ("MIG 1g.10gb", "MIG 1g.10gb", "MIG 2g.20gb")  # three slices of one H100
TOTAL_MIB = 81_559


class FakeMachine:
    """See `fake_gpus` in conftest: call it with what is to be there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self._patch, self._folder = monkeypatch, folder / "driver"
        self._folder.mkdir()
        self.limits: list[int] = []  # how many GPUs TensorFlow was told to see, call by call
        monkeypatch.setenv("PATH", f"{self._folder}{os.pathsep}{os.environ['PATH']}")
        for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "TF_FORCE_GPU_ALLOW_GROWTH"):
            monkeypatch.setenv(name, "")  # so that what a test sets is put back, too
            monkeypatch.delenv(name)

    def __call__(
        self,
        *kinds: str,
        visible: str | None = None,
        slices: tuple[str, ...] = (),
        used_mib: tuple[int, ...] = (),
        seen: int | None = None,
    ) -> None:
        """Have one GPU of each kind; `slices` cut the first, `visible` is CUDA's variable.

        TensorFlow sees `seen` of them: as many as that variable names, if it isn't given.
        """
        self._write_driver(kinds, slices, used_mib)
        if visible is None:
            self._patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        else:
            self._patch.setenv("CUDA_VISIBLE_DEVICES", visible)
        words = [] if visible is None else [word for word in visible.split(",") if word]
        seen = len(kinds if visible is None else words) if seen is None else seen
        self._kinds = [f"{kind} {slices[0]}" if slices else kind for kind in kinds][:seen]
        self._visible = seen

    def _write_driver(self, kinds, slices, used_mib) -> None:
        listed, memory = [], []
        for index, kind in enumerate(kinds):
            listed.append(f"GPU {index}: {kind} (UUID: GPU-{index}{index}aa-bb)")
            rows = enumerate(slices if index == 0 else ())
            listed += [f"  {cut}     Device  {i}: (UUID: MIG-{i}{i}cc-dd)" for i, cut in rows]
            used = used_mib[index] if used_mib else 5
            memory.append(f"{index}, GPU-{index}{index}aa-bb, {used}, {TOTAL_MIB}")
        answers = {
            "-L": listed,
            "memory": memory,
            "compute": ["GPU-00aa-bb, 4711, python train.py"],
        }
        for name, lines in answers.items():
            (self._folder / name).write_text("".join(f"{line}\n" for line in lines))
        program = self._folder / "nvidia-smi"
        program.write_text(
            "#!/bin/sh\ncase $1 in -L) f=-L;; --query-gpu*) f=memory;; *) f=compute;; esac\n"
            f'exec /bin/cat "{self._folder}/$f"\n'
        )
        program.chmod(0o755)

    def replace_lists(self, tf: Any) -> None:
        """Replace TensorFlow's device lists, as in a process that hasn't started it yet."""
        from utils import devices

        real_physical, real_logical = (
            tf.config.list_physical_devices,
            tf.config.list_logical_devices,
        )
        real_split = tf.config.get_logical_device_configuration
        real_details = tf.config.experimental.get_device_details

        def make(kind: str | None, real: Any, most: int) -> list[Any]:
            if kind != "GPU":
                return real(kind)
            return [
                SimpleNamespace(name=f"/physical_device:GPU:{index}", index=index)
                for index in range(len(self._kinds))
            ][:most]

        def limit(left: list[Any], kind: str) -> None:
            self.limits.append(len(left))
            self._visible = len(left)

        def describe(device: Any) -> dict[str, str]:
            found = isinstance(device, SimpleNamespace)
            return {"device_name": self._kinds[device.index]} if found else real_details(device)

        def find_split(device: Any) -> Any:
            return None if isinstance(device, SimpleNamespace) else real_split(device)

        everything = {
            "list_physical_devices": lambda kind=None: make(kind, real_physical, 99),
            "get_visible_devices": lambda kind=None: make(kind, real_physical, self._visible),
            "list_logical_devices": lambda kind=None: make(kind, real_logical, self._visible),
            "get_logical_device_configuration": find_split,
            "set_visible_devices": limit,
        }
        for name, replacement in everything.items():
            self._patch.setattr(tf.config, name, replacement)
        self._patch.setattr(tf.config.experimental, "get_device_details", describe)
        self._patch.setattr(devices, "has_started", lambda: False)
