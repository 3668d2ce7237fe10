"""Lab 07, cluster doctor: configurations are read as TensorFlow reads them, logs were real."""

import json
import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

from distlab.exercises.comparing import show
from distlab.exercises.exercise import Exercise, each
from distlab.labs import ANSWERS

ABSENT = (*ANSWERS, "utils.tf_config", "distlab.labs.lab07.failing_logs")

CAUSES = (
    "missing-peer",
    "taken-port",
    "wrong-index",
    "not-json",
    "alone",
    "late-strategy",
    "dead-peer",
    "mismatched-sizes",
)
HOSTS = ["10.0.0.4:2222", "10.0.0.9:2222", "10.0.0.5:3333"]
make_exercise = partial(Exercise, lab="lab07", by_hand=("utils.tf_config",), plain=True)
MACHINES = {"chief": ["a:1"], "worker": ["b:2", "c:2"], "ps": ["d:3"], "evaluator": ["e:4"]}


def _call_with_copies(answer: Callable[..., Any], *case: Any) -> Any:
    return answer(*deepcopy(list(case)))


def describe_config(given: Any, *case: Any) -> dict[str, Any] | None:
    """Return what a learner's TF_CONFIG says: cluster and task, or why it can't be read."""
    if given is None:
        return None
    if not isinstance(given, str):
        return {"kind": f"not a string but {type(given).__name__}"}
    try:
        found = json.loads(given)
    except (ValueError, RecursionError):  # also of a number of 5,000 digits, of endless brackets
        return {"kind": "Python, not JSON" if re.match(r"\s*\{\s*'", given) else "not JSON"}
    if not isinstance(found, dict):
        twice = " in JSON: json.dumps was called twice" if isinstance(found, str) else ""
        return {"kind": f"a {type(found).__name__}{twice}, not an object"}
    parts = {k: _mark_inexact(v) for k, v in found.items() if k not in ("environment", "rpc_layer")}
    return {"kind": "JSON"} | parts


def _mark_inexact(part: Any, levels: int = 8) -> Any:
    """Return a part of a TF_CONFIG in which words and indexes that TensorFlow can't read show.

    Answers are compared with some tolerance, TF_CONFIGs aren't: "WORKER " names no job, and 1.0005
    no task.
    """
    if not levels:
        return "too many levels"
    if isinstance(part, dict):
        return {key: _mark_inexact(value, levels - 1) for key, value in part.items()}
    if isinstance(part, list):
        return [_mark_inexact(value, levels - 1) for value in part]
    if isinstance(part, float | bool):
        return f"{part}, not a whole number"
    exact = not isinstance(part, str) or part == part.strip().lower()
    return part if exact else f"{part!r}, with capitals or spaces"


WORKER = make_exercise(
    name="worker",
    function="write_config",
    examples=((HOSTS, 0), (HOSTS, 2)),
    mistakes={
        "dictionary": "TF_CONFIG is an environment variable, a string: json.dumps makes one",
        "python-repr": "str() writes Python, with single quotes: json.dumps writes JSON",
        "counted-from-one": "indexes count from 0",
        "only-itself": "every task lists all machines of the cluster, not only its own",
        "index-as-text": "the index is a number, without quotes",
        "chief-and-workers": "all of these tasks are workers: without parameter servers worker "
        "0 is the chief anyway, and a job of that name isn't needed",
    },
    hint='{"cluster": {"worker": [all hosts]}, "task": {"type": "worker", "index": its place}}',
    run=each(_call_with_copies),
    shows_case=True,
    read=describe_config,
)
ROLE = make_exercise(
    name="role",
    function="write_role",
    examples=tuple(
        (MACHINES, job, index)
        for job, index in (("chief", 0), ("worker", 1), ("ps", 0), ("evaluator", 0))
    ),
    mistakes={
        "evaluator-listed": "the evaluator isn't part of the training cluster: leave its machine "
        "out of the list",
        "servers-forgotten": "the parameter servers are missing from the cluster",
        "chief-as-worker": "the chief is among the workers: it has its own job, with one task",
        "called-master": "the coordinator's job is called chief; master was its name in "
        "TensorFlow 1",
        "numbered-through": "each job counts its own tasks from 0",
        "evaluator-alone": "the evaluator gets everyone's cluster here, not its own",
        "evaluator-lists-itself": "the evaluator is in no cluster, not even in the one that its "
        "own TF_CONFIG holds",
        "evaluator-as-worker": "a task's type is the name of its job, the evaluator's too",
    },
    hint="the same cluster for all: chief, worker and ps; only the task differs",
    run=each(_call_with_copies),
    shows_case=True,
    read=describe_config,
)


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


def try_repair(repair: Callable[..., Any], *case: Any) -> Any:
    """Return what `repair` makes of the configurations that `break_configs(*case)` gives."""
    return repair(break_configs(*case))


def describe_configs(given: Any, *case: Any) -> Any:
    """Return the description of each of a list of TF_CONFIGs."""
    return [describe_config(x) for x in given] if isinstance(given, list | tuple) else given


REPAIR = make_exercise(
    name="repair",
    function="repair",
    examples=((("b:1", "a:1", "c:1", "d:1"), 2, 3, 1),),
    mistakes={
        "only-indexes": "the indexes are right, but the tasks still disagree about the machines",
        "only-clusters": "the machines agree, but an index is still used twice",
        "sorted": "the machines were put into another order: worker 0's list is the right one",
        "all-the-first": "every task says that it is worker 0",
        "counted-from-one": "indexes count from 0",
        "dictionaries": "TF_CONFIGs are strings: json.dumps makes one of each dictionary",
    },
    hint="everyone gets worker 0's cluster, and its own place as the index",
    run=each(try_repair),
    read=describe_configs,
)


def list_blamed(name: str) -> tuple[int, ...]:
    """Return which of three workers may be to blame for a failure of CAUSES."""
    return {"wrong-index": (1, 2), "dead-peer": (1, 2), "mismatched-sizes": (0, 1)}.get(
        name, (0, 1, 2)
    )


def make_logs(name: str, blamed: int, seed: int) -> list[str]:
    """Return the logs of a cluster's three workers, where worker `blamed` failed by `name`.

    What writes them knows the cause, so answers don't have that module.
    """
    from distlab.labs.lab07 import failing_logs

    return failing_logs.make_logs(name, blamed, seed)


def try_cause(diagnose: Callable[..., Any], name: str, blamed: int, seed: int) -> Any:
    """Return what `diagnose` says of the logs of a cluster that failed: a word and a worker."""
    found = diagnose(make_logs(name, blamed, seed))
    if isinstance(found, str | int) or len(_list(found)) != 2:
        return {"fault": f"returned {show(found)}, not two things: a word and a worker's index"}
    return _list(found)


def _list(found: Any) -> list[Any]:
    return list(found) if isinstance(found, list | tuple) else []


CAUSE = make_exercise(
    name="cause",
    function="diagnose",
    examples=tuple(
        (name, blamed, 100 + k) for k, name in enumerate(CAUSES) for blamed in list_blamed(name)
    ),
    mistakes={
        "first-log-only": "worker 0 waits for that machine, but it's running: read its own log for "
        "what it says there. Only a worker without a log was never started",
        "everyone-waited-for": "worker 0 lists all workers that aren't there yet, and a shorter "
        "list as they come: the last list counts",
        "named-last": "an error can quote another worker's error: the machine that it names first "
        "was lost, the other one only passed that on",
        "who-complains": "the worker that reports a lost connection is alive. Its error names the "
        "one it lost",
        "who-joins": "the machine that joins isn't always the wrong one: compare the size that it "
        "joins with, and the group's size, with the number of logs",
        "waits-or-died": "a worker that isn't there yet is waited for (missing-peer). One that "
        "took part and stopped answering is dead-peer",
        "alone-unseen": "there is no error at all, and 1 replica: it trains alone",
        "size-is-death": "a group of another size means that tasks disagree about the cluster, not "
        "that one died",
        "word-only": "the causes are right: which worker's machine would you look at?",
    },
    tolerance=1e-6,
    hint="read all three logs, and ask of each worker: did it start, does it wait, did it fail, or "
    "does it only report what another one did?",
    run=each(try_cause),
)
