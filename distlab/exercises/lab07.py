"""Lab 07, cluster doctor: what the configurations and causes should be, and the worked examples."""

import json
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

from distlab.exercises.checking import make_check
from distlab.exercises.failing_logs import LOGS, fill_in

CAUSES = tuple(LOGS)
Machines = dict[str, list[str]]


def describe_config(given: Any) -> dict[str, Any]:
    """Return what a learner's TF_CONFIG says: cluster and task, or why it cannot be read."""
    if not isinstance(given, str):
        return {"kind": f"not a string but {type(given).__name__}"}
    try:
        found = json.loads(given)
    except json.JSONDecodeError:
        return {"kind": "not JSON"}
    if not isinstance(found, dict):
        return {"kind": "not a JSON object"}
    extra = sorted(set(found) - {"cluster", "task", "environment", "rpc_layer"})
    return {"kind": "JSON", "cluster": found.get("cluster"), "task": found.get("task")} | (
        {"unknown keys": ", ".join(extra)} if extra else {}
    )


def _config(cluster: Machines, job: str, index: Any) -> dict[str, Any]:
    return {"kind": "JSON", "cluster": cluster, "task": {"type": job, "index": index}}


def expect_worker(hosts: Sequence[str], index: int, way: str = "right") -> dict[str, Any]:
    """Return the description of worker `index`'s TF_CONFIG, or of a mistaken one."""
    if way == "dictionary":
        return {"kind": "not a string but dict"}
    if way == "python-repr":
        return {"kind": "not JSON"}
    cluster = {"worker": [hosts[index]] if way == "only-itself" else list(hosts)}
    number: Any = {"counted-from-one": index + 1, "index-as-text": str(index)}.get(way, index)
    return _config(cluster, "worker", number)


def expect_role(machines: Machines, job: str, index: int, way: str = "right") -> dict[str, Any]:
    """Return the description of one task's TF_CONFIG in a parameter-server cluster."""
    cluster = {name: list(machines[name]) for name in ("chief", "worker", "ps")}
    if way == "evaluator-listed":
        cluster["evaluator"] = list(machines["evaluator"])
    if way == "servers-forgotten":
        del cluster["ps"]
    if way == "called-master":
        cluster = {"master" if name == "chief" else name: cluster[name] for name in cluster}
        job = "master" if job == "chief" else job
    if way == "numbered-through":
        order = [name for name in ("chief", "worker", "ps", "evaluator")]
        index += sum(len(machines[name]) for name in order[: order.index(job)])
    return _config(cluster, job, index)


def expect_repair(configs: Sequence[str], way: str = "right") -> list[dict[str, Any]]:
    """Return the descriptions of the repaired configurations, or of badly repaired ones."""
    read = [json.loads(text) for text in configs]
    hosts = read[0]["cluster"]["worker"]
    repaired = []
    for place, found in enumerate(read):
        cluster = found["cluster"] if way == "only-indexes" else {"worker": list(hosts)}
        if way == "sorted":
            cluster = {"worker": sorted(hosts)}
        index = found["task"]["index"] if way == "only-clusters" else place
        if way == "all-the-first":
            index = 0
        repaired.append(_config(cluster, "worker", index))
    return repaired


def break_configs(hosts: Sequence[str], twice: int, lost: int, shift: int) -> list[str]:
    """Return the TF_CONFIGs of all workers with three mistakes in them.

    Worker `twice` says that it is worker 0, worker `lost` knows one machine too few,
    and worker `shift`, unless it is 0, lists the machines in another order. Worker
    0's own is right.
    """
    configs = []
    for index in range(len(hosts)):
        known = list(hosts[:-1]) if index == lost else list(hosts)
        if index == shift:
            known = known[1:] + known[:1]
        task = {"type": "worker", "index": 0 if index == twice else index}
        configs.append(json.dumps({"cluster": {"worker": known}, "task": task}))
    return configs


def make_log(name: str, seed: int) -> str:
    """Return the log of the failing cluster `name` of CAUSES, with addresses drawn from `seed`."""
    return fill_in(LOGS[name], seed)


_CONFUSIONS = {
    "waits-or-died": {"missing-peer": "dead-peer"},
    "alone-unseen": {"alone": "late-strategy"},
    "port-for-all": dict.fromkeys(("missing-peer", "dead-peer", "mismatched-sizes"), "taken-port"),
    "size-is-death": {"mismatched-sizes": "dead-peer"},
}


def expect_cause(name: str, seed: int, way: str = "right") -> str:
    """Return the word for the cause of the log of `name`, or a confused one."""
    return _CONFUSIONS.get(way, {}).get(name, name)


HOSTS = ("10.0.0.4:2222", "10.0.0.9:2222", "10.0.0.5:3333")
MACHINES = {"chief": ["a:1"], "worker": ["b:2", "c:2"], "ps": ["d:3"], "evaluator": ["e:4"]}
WORKER = make_check(
    ("lab07", "worker", "write_config"),
    ((HOSTS, 0), (HOSTS, 2)),
    expect_worker,
    {
        "dictionary": "TF_CONFIG is an environment variable, a string: json.dumps makes one",
        "python-repr": "str() writes Python, with single quotes: json.dumps writes JSON",
        "counted-from-one": "indexes count from 0",
        "only-itself": "every task lists all machines of the cluster, not only its own",
        "index-as-text": "the index is a number, without quotes",
    },
    hint='{"cluster": {"worker": [all hosts]}, "task": {"type": "worker", "index": its place}}',
)
ROLE = make_check(
    ("lab07", "role", "write_role"),
    ((MACHINES, "chief", 0), (MACHINES, "ps", 0), (MACHINES, "evaluator", 0)),
    expect_role,
    {
        "evaluator-listed": "the evaluator is not part of the training cluster: leave its machine "
        "out of the list",
        "servers-forgotten": "the parameter servers are missing from the cluster",
        "called-master": "the coordinator's job is called chief; master was its name in "
        "TensorFlow 1",
        "numbered-through": "each job counts its own tasks from 0",
    },
    hint="the same cluster for all: chief, worker and ps; only the task differs",
)
_BROKEN = tuple(break_configs(("b:1", "a:1", "c:1", "d:1"), 2, 3, 1))
REPAIR = make_check(
    ("lab07", "repair", "repair"),
    ((_BROKEN,),),
    expect_repair,
    {
        "only-indexes": "the indexes are right, but the tasks still disagree about the machines",
        "only-clusters": "the machines agree, but an index is still used twice",
        "sorted": "the machines were put into another order: worker 0's list is the right one",
        "all-the-first": "every task says that it is worker 0",
    },
    hint="everyone gets worker 0's cluster, and the index of its own place",
)
CAUSE = make_check(
    ("lab07", "cause", "name_cause"),
    tuple((name, 100 + k) for k, name in enumerate(CAUSES)),
    expect_cause,
    {
        "waits-or-died": "a peer that has not come yet is waited for (missing-peer); one that was "
        "there and stopped answering is dead-peer",
        "alone-unseen": "no error at all, and 1 replica: it trains alone. A strategy that is made "
        "too late raises an error",
        "port-for-all": "gRPC appears in many logs: a port is taken only where the server could "
        "not start",
        "size-is-death": "a group of another size means that tasks disagree about the cluster, not "
        "that one died",
    },
    hint="look at the last line of each log, and at what it does not say",
)


def check_worker(write_config: Callable[..., Any]) -> None:
    """Try `write_config` on the worked examples; AssertionError names the mistake."""
    WORKER.verify(
        [describe_config(write_config(list(hosts), index)) for hosts, index in WORKER.examples]
    )


def check_role(write_role: Callable[..., Any]) -> None:
    """Try `write_role` in the same way."""
    ROLE.verify([describe_config(write_role(*deepcopy(example))) for example in ROLE.examples])


def check_repair(repair: Callable[..., Any]) -> None:
    """Try `repair` in the same way."""
    REPAIR.verify([describe_configs(repair(*map(list, example))) for example in REPAIR.examples])


def describe_configs(given: Any) -> Any:
    """Return the description of each of a list of TF_CONFIGs."""
    return [describe_config(x) for x in given] if isinstance(given, list | tuple) else given


def check_cause(name_cause: Callable[..., Any]) -> None:
    """Try `name_cause` on one log of each failing cluster."""
    CAUSE.verify([name_cause(make_log(*example)) for example in CAUSE.examples])
