"""The rules that one TF_CONFIG must keep, and what breaking one gives: a `LintFinding`.

They come from `TFConfigClusterResolver`, `MultiWorkerMirroredStrategy` and
`ParameterServerStrategy` in TensorFlow 2.21, and from what a machine can dial. Each
takes plain data and returns findings; `lint` puts them together.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import Any

from ..errors import shorten
from .spec import JOBS, LOOPBACK_HOSTS, MAX_PORT, TRAINING_JOBS, is_loopback, split_address

SEVERITIES = ("error", "warning", "note")
ACCEPTED_KEYS = ("cluster", "task", "environment", "rpc_layer", "session_master", "job")
OLD_NAMES = {
    "master": "chief",
    "coordinator": "chief",
    "parameter_server": "ps",
    "server": "ps",
    "eval": "evaluator",
}
TASK_EXAMPLE = '"task": {"type": "worker", "index": 0}'
CLUSTER_EXAMPLE = '"cluster": {"worker": ["host:2222", …]}'
LAST_PRIVILEGED_PORT = 1023
ANY_HOSTS = ("0.0.0.0", "::")
PORT_WORDS = ("port", "<port>", "PORT", "{port}", "$PORT")  # as documents write it
HOST = re.compile(r"[A-Za-z0-9_.-]+|[0-9A-Fa-f:.%]*:[0-9A-Fa-f:.%a-z]*")
Place = tuple[str, int]
# strategies of a cluster, by whether parameter servers belong to it
TAKES_SERVERS = {"multi-worker": False, "parameter-server": True}


@dataclass(frozen=True)
class LintFinding:
    """One thing about a configuration.

    `severity`: "error" (the cluster will not start, or not do what it says), "warning" (it may
    work, and often doesn't), "note" (right, and worth knowing). `where`: a path such as
    "cluster.worker[1]"; `what` is wrong there; `cure`: what to write instead, "" for a note without
    one.
    """

    severity: str
    where: str
    what: str
    cure: str = ""

    def __post_init__(self) -> None:
        if self.severity not in SEVERITIES:
            raise ValueError(f"severity must be one of {SEVERITIES}, got {self.severity!r}.")

    def __str__(self) -> str:
        text = f"{self.severity}: {self.where}: {self.what}"
        return " ".join(f"{text}; {self.cure}".split() if self.cure else text.split())

    def to_record(self) -> dict[str, Any]:
        return asdict(self)


def make_error(where: str, what: str, cure: str) -> LintFinding:
    """Return an error at `where`."""
    return LintFinding("error", where, what, cure)


def find_first(where: str, *rules: tuple[object, str, str]) -> list[LintFinding]:
    """Return the error of the first broken rule: (whether it is, what is wrong, cure)."""
    return next(
        ([make_error(where, what, cure)] for is_broken, what, cure in rules if is_broken), []
    )


def is_right(findings: Iterable[LintFinding]) -> bool:
    """Return whether no finding is an error."""
    return all(finding.severity != "error" for finding in findings)


def show(value: object, most: int = 60) -> str:
    """Return `value` as it would be written in Python, cut to `most` characters, on one line."""
    return shorten(repr(value), most)


def check_keys(value: dict[str, Any]) -> list[LintFinding]:
    found = []
    for key, example in (("cluster", CLUSTER_EXAMPLE), ("task", TASK_EXAMPLE)):
        if key not in value:
            meaning = {"cluster": "trains alone, without a word", "task": "cannot tell which it is"}
            what = f"is missing: TensorFlow {meaning[key]}"
            near = _find_near(key, [k for k in value if k not in ACCEPTED_KEYS])
            cure = f"rename {show(near)} to {show(key)}" if near else f"add {example}"
            found.append(make_error(key, what, cure))
    for key in value:
        if key not in ACCEPTED_KEYS:
            what = "TensorFlow doesn't read this key"
            found.append(LintFinding("warning", key, what, 'it reads "cluster" and "task"'))
    layer = value.get("rpc_layer", "grpc")
    if layer != "grpc":
        what = f"{show(layer)} isn't what TensorFlow is built with"
        found.append(LintFinding("warning", "rpc_layer", what, 'write "grpc", or leave it out'))
    return found


def check_cluster(cluster: Any) -> tuple[dict[str, list[str]], list[LintFinding]]:
    """Return the jobs whose addresses are texts, and the faults of the specification."""
    is_object, cure = isinstance(cluster, dict), f"write {CLUSTER_EXAMPLE}"
    found = find_first(
        "cluster",
        (not is_object, f"is {show(cluster)}, not an object of jobs", cure),
        (not cluster, "lists no task: TensorFlow trains alone", cure),
    )
    if found:
        return {}, found
    jobs: dict[str, list[str]] = {}
    for job, addresses in cluster.items():
        if job not in JOBS:
            what = f"{show(job)} isn't a job that TensorFlow knows"
            found.append(make_error(f"cluster.{job}", what, _suggest_job(job)))
        faults, listed = _check_list(f"cluster.{job}", addresses)
        found += faults
        if listed:
            jobs[job] = listed
    return jobs, found


def _check_list(where: str, addresses: Any) -> tuple[list[LintFinding], list[str]]:
    """Return the faults of one job's list, and its addresses if all are texts."""
    if isinstance(addresses, dict):  # TensorFlow also takes index -> address
        try:
            by_index = {int(index): address for index, address in addresses.items()}
        except ValueError:
            by_index = {}
        if addresses and sorted(by_index) == list(range(len(addresses))):
            return _check_list(where, [by_index[index] for index in sorted(by_index)])
        what = "does not list every task from 0 on"
        return [make_error(where, what, 'write a list: ["host:2222", …]')], []
    shown, is_list = show(addresses), isinstance(addresses, list)
    faults = find_first(
        where,
        (isinstance(addresses, str), f"is one text, {shown}, not a list", f"write [{shown}]"),
        (not is_list, f"is {shown}, not a list of addresses", 'write ["host:2222", …]'),
        (not addresses, "lists no task", "add its addresses or drop the job"),
    ) or [
        make_error(f"{where}[{i}]", f"{show(a)} is no text", 'write "host:port" in quotes')
        for i, a in enumerate(addresses)
        if not isinstance(a, str)
    ]
    return faults, [] if faults else list(addresses)


def check_task(task: Any) -> tuple[tuple[str, int] | None, list[LintFinding]]:
    """Return (job, index) of the task where both could be read, and the faults."""
    if not isinstance(task, dict):
        what = f"is {show(task)}, not an object"
        return None, [make_error("task", what, f"write {TASK_EXAMPLE}")]
    found = [
        make_error(f"task.{key}", "is missing", _suggest_key(key, task))
        for key in ("type", "index")
        if key not in task
    ]
    job, index = task.get("type"), task.get("index")
    if "type" in task and job not in JOBS:
        what = f"{show(job)} isn't a job that TensorFlow knows"
        found.append(make_error("task.type", what, _suggest_job(job)))
    if "index" in task:
        found += _check_index(index)
    number = _read_index(index)
    return ((job, number) if isinstance(job, str) and number is not None else None), found


def _read_index(index: Any) -> int | None:
    """Return the index as TensorFlow reads it, None if it isn't a whole number."""
    if isinstance(index, bool) or not isinstance(index, (int, float, str)):
        return None
    try:
        return int(index) if float(index) == int(index) else None
    except (ValueError, OverflowError):
        return None


def _check_index(index: Any) -> list[LintFinding]:
    number = _read_index(index)
    if number is None:
        what = f"{show(index)} is not a whole number"
        return [make_error("task.index", what, "write 0, 1, … without quotes")]
    if number < 0:
        return [make_error("task.index", f"{number} is negative", "the first task is 0")]
    if not isinstance(index, int):
        what = f"is {show(index)}, which TensorFlow converts and your `index == {number}` does not"
        severity = "error" if isinstance(index, str) else "warning"
        return [LintFinding(severity, "task.index", what, f"write {number} without quotes")]
    return []


def check_membership(jobs: dict[str, list[str]], job: str, index: int) -> list[LintFinding]:
    """Is the task one of the cluster's? An evaluator need not be."""
    if job not in JOBS:
        return []
    if job not in jobs:
        if job == "evaluator":
            return [] if index == 0 else [_too_high("evaluator", index, 1)]
        listed = ", ".join(jobs)
        what = f"{show(job)} is not in the cluster, which has {listed}"
        known = next((name for name in jobs if name in JOBS), None)
        instead = f', or write "type": "{known}"' if known else ""
        return [make_error("task.type", what, f"add its address{instead}")]
    return [_too_high(job, index, len(jobs[job]))] if index >= len(jobs[job]) else []


def _too_high(job: str, index: int, count: int) -> LintFinding:
    what = f"{index} is out of range: the cluster has {count} {job} task{'s' * (count != 1)}"
    cure = "the only index is 0" if count == 1 else f"indexes count from 0: 0 to {count - 1}"
    return make_error("task.index", what, cure)


def check_roles(
    jobs: dict[str, list[str]], task: tuple[str, int] | None, strategy: str | None
) -> list[LintFinding]:
    found = []
    for job in ("chief", "evaluator"):
        if len(jobs.get(job, [])) > 1:
            what = f"lists {len(jobs[job])} tasks: there is one {job} at most"
            found.append(make_error(f"cluster.{job}", what, "keep one, the rest are workers"))
    found += _check_evaluator(jobs, strategy)
    alone = task is not None and task[0] == "evaluator" or set(jobs) == {"evaluator"}
    if not jobs or alone:
        return found
    if "ps" in jobs and "worker" not in jobs:
        what = "there is ps and no worker: nobody would compute"
        found.append(make_error("cluster", what, 'add "worker" addresses'))
    elif "ps" in jobs and "chief" not in jobs and TAKES_SERVERS.get(strategy) is not False:
        what = "ps without chief: the coordinator must run as a process that isn't listed"
        found.append(LintFinding("note", "cluster", what, 'or list it as "chief"'))
    return found + _check_strategy(jobs, strategy)


def _check_strategy(jobs: dict[str, list[str]], strategy: str | None) -> list[LintFinding]:
    if "ps" in jobs and TAKES_SERVERS.get(strategy) is False:
        what = "has ps tasks, which MultiWorkerMirroredStrategy does not know"
        cure = "take ps out, or use ParameterServerStrategy"
        return [make_error("cluster", what, cure)]
    if "ps" not in jobs and TAKES_SERVERS.get(strategy):
        what = "has no ps task, and ParameterServerStrategy keeps its variables there"
        cure = 'add "ps" addresses, or use MultiWorkerMirroredStrategy'
        return [make_error("cluster", what, cure)]
    if sum(len(jobs.get(job, [])) for job in TRAINING_JOBS) == 1:
        return [LintFinding("note", "cluster", "has one task: it trains alone")]
    return []


def _check_evaluator(jobs: dict[str, list[str]], strategy: str | None) -> list[LintFinding]:
    """The evaluator belongs next to the training cluster, alone in its own or in none."""
    if "evaluator" not in jobs or len(jobs) == 1:
        return []
    waits = "ps" in jobs or TAKES_SERVERS.get(strategy, False)
    what = "the evaluator is not part of the training cluster" + (
        ": the coordinator waits for every task that is listed" if waits else ""
    )
    cure = "leave it out: its own task is type evaluator, index 0"
    return [LintFinding("error" if waits else "warning", "cluster.evaluator", what, cure)]


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


def check_addresses(jobs: dict[str, list[str]], own: Place | None) -> list[LintFinding]:
    """Return the faults of all addresses, one by one and compared.

    `own` is the (job, index) of the task whose configuration this is: a loopback
    address among remote ones may be meant for it alone.
    """
    places = [(job, i, address) for job, all_ in jobs.items() for i, address in enumerate(all_)]
    found: list[LintFinding] = []
    for job, index, address in places:
        found += _check_address(f"cluster.{job}[{index}]", address)
    return found + list(_find_duplicates(places)) + list(_find_mixed_loopback(places, own))


def _check_address(where: str, address: str) -> list[LintFinding]:
    scheme, _, rest = address.partition("://")
    host, port = split_address(address)
    shown, rest = show(address), show(rest.strip("/") or "host:port")
    several = address.count(":") > 1 and not address.startswith("[")
    return find_first(
        where,
        ("://" in address, f"{shown} has a scheme, {scheme}://", f"write {rest}"),
        (
            any(c.isspace() for c in address),
            f"{shown} has a space in it",
            f"write {show(''.join(address.split()))}",
        ),
        (
            "," in address,
            f"{shown} is several addresses in one text",
            'write a list: ["a:2222", "b:2222"]',
        ),
        (
            several,
            f"{shown} has several colons",
            "write host:port, an IPv6 host in brackets: [::1]:2222",
        ),
    ) or _check_host(where, host, address) + _check_port(where, port or "", address)


def _check_host(where: str, host: str, address: str) -> list[LintFinding]:
    named = "write the name under which the other tasks reach it"
    listens = f"{host} is where a server listens, not an address that others can reach"
    return find_first(
        where,
        (not host, f"{show(address)} names no host", named),
        (host in ANY_HOSTS, listens, "write this task's own host name or address"),
        (
            not HOST.fullmatch(host),
            f"{show(host)} is no host name",
            "letters, digits, dots and hyphens only",
        ),
    )


def _check_port(where: str, port: str, address: str) -> list[LintFinding]:
    if port in PORT_WORDS:
        what = f"{show(address)} still has the documents' word for the port"
        return [LintFinding("warning", where, what, "put a number in before you start")]
    is_number = port.isascii() and port.isdigit()
    number, choice = int(port[:9]) if is_number else 0, f"from 1 to {MAX_PORT}"
    far = not 1 <= number <= MAX_PORT or len(port) > 9
    found = find_first(
        where,
        (not port, f"{show(address)} has no port", "write host:port"),
        (not is_number, f"the port {show(port)} is not a number", f"write a number {choice}"),
        (far, f"there is no port {port[:12]} for peers to call", f"choose {choice}"),
    )
    if not found and number <= LAST_PRIVILEGED_PORT:
        what = f"port {port} is privileged: only root may listen there"
        return [LintFinding("warning", where, what, f"choose one above {LAST_PRIVILEGED_PORT}")]
    return found


def _find_duplicates(places: list[tuple[str, int, str]]) -> Iterator[LintFinding]:
    first: dict[tuple[str, str | None], str] = {}
    for job, index, address in places:
        host, port = split_address(address)
        key = ("loopback" if host.lower() in LOOPBACK_HOSTS else host.lower(), port)
        if port in PORT_WORDS and key in first:
            continue
        if key in first:
            what = f"{show(address)} is the address of {first[key]} too"
            cure = "give each task its own port, or its own host"
            yield make_error(f"cluster.{job}[{index}]", what, cure)
        first.setdefault(key, f"{job}:{index}")


def _find_mixed_loopback(
    places: list[tuple[str, int, str]], own: Place | None
) -> Iterator[LintFinding]:
    local = [p for p in places if is_loopback(split_address(p[2])[0])]
    if not local or len(local) == len(places):
        return
    remote = next(p for p in places if p not in local)
    for job, index, address in local:
        what = f"{show(address)} is each machine's own, but {remote[0]}:{remote[1]} is elsewhere"
        severity = "warning" if (job, index) == own else "error"
        cure = "write the host name that the other machines know"
        yield LintFinding(severity, f"cluster.{job}[{index}]", what, cure)
