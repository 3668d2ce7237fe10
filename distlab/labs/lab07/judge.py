"""Lab 07, cluster doctor: what configurations should say, and the causes of the logs."""

import json
from collections.abc import Sequence
from typing import Any

from distlab.exercises.comparing import AnyOf
from distlab.grading.judging import Judge, LabRules
from distlab.labs.lab07 import exercise as lab07
from distlab.labs.lab07.exercise import break_configs

RULES = LabRules(cell_seconds=10, submission_seconds=30, data=())
Machines = dict[str, list[str]]


def _config(cluster: Machines, job: str, index: Any) -> dict[str, Any]:
    return {"kind": "JSON", "cluster": cluster, "task": {"type": job, "index": index}}


def expect_worker(hosts: Sequence[str], index: int, way: str = "right") -> dict[str, Any]:
    """Return the description of worker `index`'s TF_CONFIG, or of a mistaken one."""
    if way == "dictionary":
        return {"kind": "not a string but dict"}
    if way == "python-repr":
        return {"kind": "Python, not JSON"}
    if way == "chief-and-workers":
        job, place = ("worker", index - 1) if index else ("chief", 0)
        return _config({"chief": list(hosts[:1]), "worker": list(hosts[1:])}, job, place)
    cluster = {"worker": [hosts[index]] if way == "only-itself" else list(hosts)}
    number: Any = {"counted-from-one": index + 1, "index-as-text": str(index)}.get(way, index)
    return _config(cluster, "worker", number)


def expect_role(machines: Machines, job: str, index: int, way: str = "right") -> dict[str, Any]:
    """Return the description of one task's TF_CONFIG in a parameter-server cluster."""
    cluster = {name: list(machines[name]) for name in ("chief", "worker", "ps")}
    if way == "evaluator-listed" or (way == "evaluator-lists-itself" and job == "evaluator"):
        cluster["evaluator"] = list(machines["evaluator"])
    if way == "evaluator-alone" and job == "evaluator":
        cluster = {"evaluator": list(machines["evaluator"])}
    if way == "servers-forgotten":
        del cluster["ps"]
    if way == "chief-as-worker":
        cluster["worker"] = [*cluster.pop("chief"), *cluster["worker"]]
    if way == "called-master":
        cluster = {"master" if name == "chief" else name: cluster[name] for name in cluster}
        job = "master" if job == "chief" else job
    if way == "numbered-through":
        order = [name for name in ("chief", "worker", "ps", "evaluator")]
        index += sum(len(machines[name]) for name in order[: order.index(job)])
    if way == "evaluator-as-worker" and job == "evaluator":
        job = "worker"
    return _config(cluster, job, index)


def expect_repair(*case: Any, way: str = "right") -> list[dict[str, Any]]:
    """Return the descriptions of the repaired configurations, or of badly repaired ones."""
    read = [json.loads(text) for text in break_configs(*case)]
    hosts = read[0]["cluster"]["worker"]
    repaired = []
    for place, found in enumerate(read):
        cluster = found["cluster"] if way == "only-indexes" else {"worker": list(hosts)}
        if way == "sorted":
            cluster = {"worker": sorted(hosts)}
        index = found["task"]["index"] if way == "only-clusters" else place
        index = {"all-the-first": 0, "counted-from-one": place + 1}.get(way, index)
        repaired.append(_config(cluster, "worker", index))
    return [{"kind": "not a string but dict"}] * len(read) if way == "dictionaries" else repaired


def expect_cause(name: str, blamed: int, seed: int, way: str = "right") -> Any:
    """Return the word for what failed in a cluster and the worker to look at, or confused ones."""
    waited = name not in ("dead-peer", "mismatched-sizes")
    worker: Any = blamed
    if waited and way == "first-log-only" and blamed:
        name = "missing-peer"
    elif waited and way == "everyone-waited-for":
        worker = min(blamed, 1)
    elif name == "dead-peer" and way in ("who-complains", "named-last"):
        worker = 0 if way == "who-complains" else (blamed + 1) % 3  # it passes the error on
    elif name == "mismatched-sizes" and way == "who-joins":
        worker = 1
    elif way == "word-only":
        worker = AnyOf(tuple(k for k in range(3) if k != blamed))
    name = _CONFUSIONS.get(way, {}).get(name, name)
    return [name, worker]


_CONFUSIONS = {
    "waits-or-died": {"missing-peer": "dead-peer"},
    "alone-unseen": {"alone": "late-strategy"},
    "size-is-death": {"mismatched-sizes": "dead-peer"},
}

WORKER = Judge(lab07.WORKER, expect_worker)
ROLE = Judge(lab07.ROLE, expect_role)
REPAIR = Judge(lab07.REPAIR, expect_repair)
CAUSE = Judge(lab07.CAUSE, expect_cause)
