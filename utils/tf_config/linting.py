"""The linter: what is wrong with one TF_CONFIG, where, and what to write instead.

The rules are those of `TFConfigClusterResolver`, `MultiWorkerMirroredStrategy` and
`ParameterServerStrategy` in TensorFlow 2.21, and of what a machine can dial.
"""

from difflib import get_close_matches
from typing import Any

from .addresses import check_addresses
from .findings import Finding, is_right, show
from .reading import read_object
from .spec import JOBS, TRAINING_JOBS, ClusterSpec, TaskConfig, describe_role

STRATEGIES = ("multi-worker", "parameter-server")
ACCEPTED_KEYS = ("cluster", "task", "environment", "rpc_layer", "session_master", "job")
OLD_NAMES = {"master": "chief", "coordinator": "chief", "parameter_server": "ps", "server": "ps",
             "eval": "evaluator"}  # fmt: skip
TASK_EXAMPLE = '"task": {"type": "worker", "index": 0}'
CLUSTER_EXAMPLE = '"cluster": {"worker": ["host:2222", …]}'


def lint(text: str, strategy: str | None = None) -> list[Finding]:
    """Return the findings on one TF_CONFIG, errors first; a right one has notes at most.

    `strategy`, "multi-worker" or "parameter-server", adds what that strategy needs.
    Raises ValueError for another strategy.
    """
    return examine(text, strategy)[1]


def examine(text: str, strategy: str | None = None) -> tuple[TaskConfig | None, list[Finding]]:
    """Return the configuration, None unless it could be read as one, and the findings."""
    if strategy not in (None, *STRATEGIES):
        raise ValueError(f"strategy {strategy!r}: one of {STRATEGIES}")
    value, found = read_object(text)
    if value is None:
        return None, found
    found += _check_keys(value)
    jobs, faults = _check_cluster(value["cluster"]) if "cluster" in value else ({}, [])
    found += faults
    task, faults = _check_task(value["task"]) if "task" in value else (None, [])
    found += faults
    found += check_addresses(jobs, task)
    if jobs and task:
        found += _check_membership(jobs, *task)
    found += _check_roles(jobs, task, strategy)
    config = _make_config(value, jobs, task)
    if config and is_right(found):
        found.append(Finding("note", "task", f"{config.name}: {describe_role(config)}"))
    order = {"error": 0, "warning": 1, "note": 2}
    return config, sorted(found, key=lambda finding: order[finding.severity])


def _make_config(
    value: dict[str, Any], jobs: dict[str, list[str]], task: tuple[str, int] | None
) -> TaskConfig | None:
    if not jobs or task is None or not set(jobs) <= set(JOBS):
        return None
    extras = {key: value[key] for key in value if key not in ("cluster", "task")}
    cluster = ClusterSpec(**{job: tuple(all_) for job, all_ in jobs.items()})
    return TaskConfig(cluster, *task, extras=extras)


def _check_keys(value: dict[str, Any]) -> list[Finding]:
    found = []
    for key, example in (("cluster", CLUSTER_EXAMPLE), ("task", TASK_EXAMPLE)):
        if key not in value:
            meaning = {"cluster": "trains alone, without a word", "task": "cannot tell which it is"}
            what = f"is missing: TensorFlow {meaning[key]}"
            near = _find_near(key, [k for k in value if k not in ACCEPTED_KEYS])
            cure = f"rename {show(near)} to {show(key)}" if near else f"add {example}"
            found.append(Finding("error", key, what, cure))
    for key in value:
        if key not in ACCEPTED_KEYS:
            what = "TensorFlow does not read this key"
            found.append(Finding("warning", key, what, 'it reads "cluster" and "task"'))
    layer = value.get("rpc_layer", "grpc")
    if layer != "grpc":
        found.append(Finding("warning", "rpc_layer", f"{show(layer)} is not what TensorFlow is "
                             "built with", 'write "grpc", or leave it out'))  # fmt: skip
    return found


def _check_cluster(cluster: Any) -> tuple[dict[str, list[str]], list[Finding]]:
    """Return the jobs whose addresses are texts, and the faults of the specification."""
    if not isinstance(cluster, dict):
        what = f"is {show(cluster)}, not an object of jobs"
        return {}, [Finding("error", "cluster", what, f"write {CLUSTER_EXAMPLE}")]
    if not cluster:
        return {}, [Finding("error", "cluster", "lists no task: TensorFlow trains alone",
                            f"write {CLUSTER_EXAMPLE}")]  # fmt: skip
    jobs: dict[str, list[str]] = {}
    found: list[Finding] = []
    for job, addresses in cluster.items():
        if job not in JOBS:
            what = f"{show(job)} is no job that TensorFlow knows"
            found.append(Finding("error", f"cluster.{job}", what, _suggest_job(job)))
        faults, listed = _check_list(f"cluster.{job}", addresses)
        found += faults
        if listed:
            jobs[job] = listed
    return jobs, found


def _check_list(where: str, addresses: Any) -> tuple[list[Finding], list[str]]:
    """Return the faults of one job's list, and its addresses if all are texts."""
    if isinstance(addresses, dict):  # TensorFlow also takes index -> address
        try:
            by_index = {int(index): address for index, address in addresses.items()}
        except ValueError:
            by_index = {}
        if addresses and sorted(by_index) == list(range(len(addresses))):
            return _check_list(where, [by_index[index] for index in sorted(by_index)])
        what = "does not list every task from 0 on"
        return [Finding("error", where, what, 'write a list: ["host:2222", …]')], []
    if isinstance(addresses, str):
        what = f"is one text, {show(addresses)}, not a list"
        return [Finding("error", where, what, f"write [{show(addresses)}]")], []
    if not isinstance(addresses, list):
        what = f"is {show(addresses)}, not a list of addresses"
        return [Finding("error", where, what, 'write ["host:2222", …]')], []
    if not addresses:
        return [Finding("error", where, "lists no task", "add its addresses or drop the job")], []
    faults = [
        Finding("error", f"{where}[{i}]", f"{show(a)} is no text", 'write "host:port" in quotes')
        for i, a in enumerate(addresses)
        if not isinstance(a, str)
    ]
    return faults, [] if faults else list(addresses)


def _check_task(task: Any) -> tuple[tuple[str, int] | None, list[Finding]]:
    """Return (job, index) of the task where both could be read, and the faults."""
    if not isinstance(task, dict):
        what = f"is {show(task)}, not an object"
        return None, [Finding("error", "task", what, f"write {TASK_EXAMPLE}")]
    found = [
        Finding("error", f"task.{key}", "is missing", _suggest_key(key, task))
        for key in ("type", "index")
        if key not in task
    ]
    job, index = task.get("type"), task.get("index")
    if "type" in task and job not in JOBS:
        what = f"{show(job)} is no job that TensorFlow knows"
        found.append(Finding("error", "task.type", what, _suggest_job(job)))
    if "index" in task:
        found += _check_index(index)
    number = _read_index(index)
    return ((job, number) if isinstance(job, str) and number is not None else None), found


def _read_index(index: Any) -> int | None:
    """Return the index as TensorFlow reads it, None where it is no whole number."""
    if isinstance(index, bool) or not isinstance(index, (int, float, str)):
        return None
    try:
        return int(index) if float(index) == int(index) else None
    except (ValueError, OverflowError):
        return None


def _check_index(index: Any) -> list[Finding]:
    number = _read_index(index)
    if number is None:
        what = f"{show(index)} is not a whole number"
        return [Finding("error", "task.index", what, "write 0, 1, … without quotes")]
    if number < 0:
        return [Finding("error", "task.index", f"{number} is negative", "the first task is 0")]
    if not isinstance(index, int):
        what = f"is {show(index)}, which TensorFlow converts and your `index == {number}` does not"
        return [Finding("error" if isinstance(index, str) else "warning", "task.index", what,
                        f"write {number} without quotes")]  # fmt: skip
    return []


def _check_membership(jobs: dict[str, list[str]], job: str, index: int) -> list[Finding]:
    """Is the task one of the cluster's? An evaluator need not be."""
    if job not in JOBS:
        return []
    if job not in jobs:
        if job == "evaluator":
            return [] if index == 0 else [_too_high("evaluator", index, 1)]
        listed = ", ".join(jobs)
        what = f"{show(job)} is not in the cluster, which has {listed}"
        return [
            Finding("error", "task.type", what, f"list its address, or be a {next(iter(jobs))}")
        ]
    return [_too_high(job, index, len(jobs[job]))] if index >= len(jobs[job]) else []


def _too_high(job: str, index: int, count: int) -> Finding:
    what = f"{index} is out of range: the cluster has {count} {job} task{'s' * (count != 1)}"
    cure = "the only index is 0" if count == 1 else f"indexes count from 0: 0 to {count - 1}"
    return Finding("error", "task.index", what, cure)


def _check_roles(
    jobs: dict[str, list[str]], task: tuple[str, int] | None, strategy: str | None
) -> list[Finding]:
    found = []
    for job in ("chief", "evaluator"):
        if len(jobs.get(job, [])) > 1:
            what = f"lists {len(jobs[job])} tasks: there is one {job} at most"
            found.append(Finding("error", f"cluster.{job}", what, "keep one, the rest are workers"))
    found += _check_evaluator(jobs, strategy)
    alone = task is not None and task[0] == "evaluator" or set(jobs) == {"evaluator"}
    if not jobs or alone:
        return found
    if "ps" in jobs and "worker" not in jobs:
        what = "there is ps and no worker: nobody would compute"
        found.append(Finding("error", "cluster", what, 'add "worker" addresses'))
    elif "ps" in jobs and "chief" not in jobs and strategy != "multi-worker":
        what = "ps without chief: the coordinator must run as a process that is not listed"
        found.append(Finding("note", "cluster", what, 'or list it as "chief"'))
    return found + _check_strategy(jobs, strategy)


def _check_strategy(jobs: dict[str, list[str]], strategy: str | None) -> list[Finding]:
    if strategy == "multi-worker" and "ps" in jobs:
        what = "has ps tasks, which MultiWorkerMirroredStrategy does not know"
        cure = "take ps out, or use ParameterServerStrategy"
        return [Finding("error", "cluster", what, cure)]
    if strategy == "parameter-server" and "ps" not in jobs:
        what = "has no ps task, and ParameterServerStrategy keeps its variables there"
        cure = 'add "ps" addresses, or use MultiWorkerMirroredStrategy'
        return [Finding("error", "cluster", what, cure)]
    if sum(len(jobs.get(job, [])) for job in TRAINING_JOBS) == 1:
        return [Finding("note", "cluster", "has one task: it trains alone")]
    return []


def _check_evaluator(jobs: dict[str, list[str]], strategy: str | None) -> list[Finding]:
    """The evaluator belongs beside the training cluster, alone in its own or in none."""
    if "evaluator" not in jobs or len(jobs) == 1:
        return []
    waits = "ps" in jobs or strategy == "parameter-server"
    what = "the evaluator is not part of the training cluster" + (
        ": the coordinator waits for every task that is listed" if waits else ""
    )
    cure = "leave it out: its own task is type evaluator, index 0"
    return [Finding("error" if waits else "warning", "cluster.evaluator", what, cure)]


def _suggest_job(job: Any) -> str:
    near = OLD_NAMES.get(job) or _find_near(job, JOBS) if isinstance(job, str) else None
    return f"did you mean {show(near)}?" if near else f"choose from {', '.join(JOBS)}"


def _suggest_key(key: str, task: dict[str, Any]) -> str:
    other = {"type": ("job", "job_name", "name"), "index": ("id", "task_id", "rank", "task_index")}
    near = next((k for k in other[key] if k in task), None) or _find_near(key, list(task))
    return f"rename {show(near)} to {show(key)}" if near else f"write {TASK_EXAMPLE}"


def _find_near(name: str, choices: Any) -> str | None:
    by_lower = {choice.lower(): choice for choice in choices}
    near = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.7)
    return by_lower[near[0]] if near else None
