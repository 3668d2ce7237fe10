"""Prove on a machine with GPUs what can't be seen without: `make gpu-check` writes one report.

Each check of `gpu_checks` runs in its own process, with a time limit. Exit status 0 if all pass, 1
if one fails, 2 without a GPU.
"""

import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.gpu_checks import CHECKS
from utils.environment import versions
from utils.errors import InputError
from utils.gpus import VISIBLE, list_gpus, read_driver, sharing_variables
from utils.measure import count

FOLDER = Path(__file__).with_name("gpu")
TOTAL_SECONDS = 15 * 60
PRETENDED = (
    "**A rehearsal on logical CPU devices. No GPU took part: this proves nothing of GPUs.**\n"
)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="gpu_check", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="CHECK", help=", ".join(CHECKS))
    parser.add_argument("--pretend", type=int, metavar="N", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, metavar="DIR", help=argparse.SUPPRESS)
    arguments = parser.parse_args(words)
    if unknown := {*arguments.names} - {*CHECKS}:
        parser.error(f"{', '.join(sorted(unknown))}: choose from {', '.join(CHECKS)}")
    if arguments.pretend and (arguments.out or FOLDER).resolve() == FOLDER:
        parser.error("--pretend needs --out with another folder than that of real reports")
    try:
        gpus = [] if arguments.pretend else list_gpus()
    except InputError as error:
        parser.error(str(error))
    if not gpus and not arguments.pretend:
        print("gpu-check: no GPU here, so there is nothing to check", file=sys.stderr)
        return 2
    kind, number = ("CPU", arguments.pretend) if arguments.pretend else ("GPU", len(gpus))
    found = run_checks(arguments.names or list(CHECKS), kind, number)
    path = write_report(arguments.out or FOLDER, kind, number, found)
    print(f"gpu-check: {path}", file=sys.stderr)
    return int(any(one["state"] == "FAILED" for one in found.values()))


def run_checks(names: list[str], kind: str, number: int) -> dict[str, dict[str, Any]]:
    """Return what each check said, by its name."""
    end, found = time.monotonic() + TOTAL_SECONDS, {}
    for name in names:
        print(f"gpu-check: {name}", file=sys.stderr, flush=True)
        found[name] = run_check(name, kind, number, end - time.monotonic())
        print(f"gpu-check: {name} {found[name]['state']}", file=sys.stderr, flush=True)
    return found


def run_check(name: str, kind: str, number: int, seconds: float) -> dict[str, Any]:
    """Run one check in a process and return its answer."""
    if seconds <= 0:
        return {"state": "not run", "why": "15 minutes were over", "seconds": 0.0}
    command = [sys.executable, "-m", "benchmarks.gpu_checks", name, kind, str(number)]
    environment = {**os.environ, **(sharing_variables() if kind == "GPU" else {VISIBLE: ""})}
    child = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=FOLDER.parents[1],
        start_new_session=True,
    )
    try:
        output, errors = child.communicate(timeout=seconds)
        return json.loads(output.splitlines()[-1])
    except (ValueError, IndexError):
        last = (errors.strip().splitlines() or ["nothing was printed"])[-1]
        return {"state": "FAILED", "why": f"status {child.returncode}: {last}", "seconds": 0.0}
    except subprocess.TimeoutExpired:
        return {"state": "FAILED", "why": f"no end within {seconds:.0f} s", "seconds": seconds}
    finally:
        end_group(child)


def end_group(child: "subprocess.Popen[str]") -> None:
    """End the check and everything that it started."""
    try:
        os.killpg(child.pid, 9)
    except (ProcessLookupError, PermissionError):
        pass
    child.wait()


def write_report(folder: Path, kind: str, number: int, found: dict[str, dict[str, Any]]) -> Path:
    """Write the report and return its path: the date and the GPUs are its name."""
    devices = [gpu.kind for gpu in read_driver()] if kind == "GPU" else ["logical CPU"] * number
    slug = re.sub(r"[^a-z0-9]+", "-", f"{number}x {devices[0]}".lower()).strip("-")
    today = datetime.date.today().isoformat()
    title = f"# {number} {' and '.join(dict.fromkeys(devices))}, {today}\n"
    lines = [title, *([PRETENDED] if kind == "CPU" else []), *describe_machine(devices)]
    lines += ["", "| check | result | seconds | |", "|---|---|---|---|"]
    for name, one in found.items():
        lines.append(f"| {name} | {one['state']} | {one['seconds']:.0f} | {one.get('why', '')} |")
    for name, one in found.items():
        if one.get("rows"):
            about = CHECKS[name].__doc__.strip()
            lines += ["", f"## {name}", "", about, "", *tabulate(one["rows"])]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{today}-{slug}.md"
    path.write_text("\n".join(lines) + "\n")
    return path


def tabulate(rows: list[list[str]]) -> list[str]:
    """Return the rows as a Markdown table; the first is its head."""
    head, *body = (f"| {' | '.join(row)} |" for row in rows)
    return [head, "|" + "---|" * len(rows[0]), *body]


def describe_machine(devices: list[str]) -> list[str]:
    """Return what a reader needs to compare these figures with others."""
    import tensorflow as tf

    build = tf.sysconfig.get_build_info()
    driver = (
        subprocess.run(
            ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
        ).stdout.split()
        if devices[0] != "logical CPU"
        else []
    )
    known = ", ".join(f"{name} {version}" for name, version in versions().items())
    return [
        f"- Devices: {', '.join(count(devices.count(one), one) for one in dict.fromkeys(devices))}",
        f"- Driver: {driver[0] if driver else 'none'}; TensorFlow's CUDA "
        f"{build.get('cuda_version', 'none')}, cuDNN {build.get('cudnn_version', 'none')}",
        f"- {known}",
        f"- {platform.platform()}, {count(os.cpu_count() or 1, 'core')}",
    ]


if __name__ == "__main__":
    sys.exit(main())
