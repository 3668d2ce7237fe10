"""From an error or a log of a cluster's task to what went wrong and what to do.

    found = diagnose(log_text, os.environ["TF_CONFIG"])
    print(found.cause, found.cure)

Reads the text only: nothing is run, no TensorFlow is imported.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..errors import shorten
from .lint import examine
from .spec import TaskConfig
from .symptoms import (
    COLLATERAL,
    CONFIGURATION,
    EXCEPTIONS,
    OLD_PROGRAMS,
    PROGRAM,
    TASK,
    Symptom,
    find_package,
)
from .tracebacks import read_error

MAX_EVIDENCE = 300
TAIL_CHARACTERS, MAX_LINE = 200_000, 4000  # of a text, and of each line of it
SINGLE = "Single-worker MultiWorkerMirroredStrategy"
REPLICAS = re.compile(r"num_replicas_in_sync\D{0,4}1\b|\bof 1 replicas?\b|\breplicas: 1\b")
COLLECTED = "has successfully connected"
SERVER = re.compile(r"Started server with target: grpc://(\S+)")
STRAGGLERS = re.compile(
    r"Waiting for (\d+)/\d+ tasks to connect[^\n]*(?:\n[^\n]*stragglers:\s*\n" + TASK + r")?"
)
COORDINATOR = "ParameterServerStrategyV2 is now connecting to cluster"
COLLATERAL_NAMES = ("dead-peer", "dead-parameter-server", "renewed-server")
WAITING_NAMES, RAISED = ("missing-peer", "silent", "server"), "exception"


@dataclass(frozen=True)
class Diagnosis:
    """Why a task failed or waits. Each field is one line.

    `cause`, `cure`: in plain words. `task`: "worker:1", the task at fault, None if the text doesn't
    say. `evidence`: the line that shows it. `name`: the mistake in short, such as "taken-port".
    `place`: the last line of the user's code in its traceback, such as "train.py, line 8", if there
    is one.
    """

    cause: str
    cure: str
    task: str | None = None
    evidence: str = ""
    name: str = ""
    place: str = ""

    @property
    def is_known(self) -> bool:
        """True for a known mistake, False for an unknown error or a consequence."""
        return self.name not in (*COLLATERAL_NAMES, *WAITING_NAMES, RAISED)

    def __str__(self) -> str:
        return f"{self.task + ': ' if self.task else ''}{self.cause}; {self.cure}"


def diagnose(log_or_exception_text: str, tf_config: str | None = None) -> Diagnosis | None:
    """Return what went wrong in a task by its `log_or_exception_text`, None if it isn't known.

    `tf_config` is that task's TF_CONFIG, if it has one. It adds the mistakes that leave no trace in
    a log (a task that trains alone, one that waits) and the names of tasks. A log that ends without
    an error is read as the log of a task that still waits.

        >>> diagnose("UNKNOWN: Could not start gRPC server").name
        'taken-port'
    """
    text = "\n".join(map(_cut_line, log_or_exception_text[-TAIL_CHARACTERS:].split("\n")))
    config, findings = examine(tf_config) if tf_config is not None else (None, [])
    own = config.name if config else None
    error = read_error(text.split("\n"))
    raised = error.traceback if error else ""
    for symptom in (*CONFIGURATION, *PROGRAM, *OLD_PROGRAMS):
        if found := _recognize(symptom, text, own):
            return found
    for symptom in EXCEPTIONS:
        if found := _recognize(symptom, raised, own):
            return replace(found, place=error.place)
    for symptom in COLLATERAL:
        if found := _recognize(symptom, text, own):
            return found
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        worst = errors[0]
        cause = f"TF_CONFIG: {worst.where}: {worst.what}"
        return Diagnosis(cause, worst.cure, own, str(worst), "configuration")
    return _find_alone(text, config) or _find_waiting(text, config)


def diagnose_cluster(
    logs: Mapping[str, str], tf_configs: Mapping[str, str] | None = None
) -> Diagnosis | None:
    """Return the first cause among the logs of all tasks: name -> text, and TF_CONFIG likewise.

    A known cause comes first, then an error that a program raised, best of a task that others
    have lost. A task that only says that another has gone, or that it waits, counts only if
    no task has its own cause. `task` gets the name of the log.
    """
    configs = tf_configs or {}
    found = {name: diagnose(text, configs.get(name)) for name, text in logs.items()}
    named = [(name, each) for name, each in found.items() if each is not None]
    named.sort(key=lambda pair: _rank(pair[1]))
    if not named or _rank(named[0][1]):
        lost = [each.task for _, each in named if is_collateral(each) and each.task]
        if raised := _find_raised(logs, lost):
            return raised
    if not named or (named[0][1].name == "server" and _is_coordinated(logs)):
        return None
    name, first = named[0]
    if first.task is not None:
        return first
    return replace(first, task=name)


def is_collateral(found: Diagnosis | None) -> bool:
    """Return whether a task has only said that another one has gone."""
    return found is not None and found.name in COLLATERAL_NAMES


def _rank(found: Diagnosis) -> int:
    return is_collateral(found) + 2 * (found.name in WAITING_NAMES)


def _find_raised(logs: Mapping[str, str], lost: Sequence[str]) -> Diagnosis | None:
    """Return the error that a program raised for its own reason; first if others lost it."""
    names = sorted(logs, key=lambda name: not any(_names_task(name, task) for task in lost))
    for name in names:
        error = read_error(logs[name][-TAIL_CHARACTERS:].split("\n"))
        if error and not any(s.pattern.search(error.traceback) for s in COLLATERAL):
            place = error.place or "the place that its traceback names"
            cure = f"correct the program at {place}"
            if lost:
                cure += "; the other tasks only say that they have lost this one"
            words = _put_on_one_line(error.error, MAX_EVIDENCE)
            evidence = words.partition(": ")[2] or words
            return Diagnosis(f"it raised {words}", cure, name, evidence, RAISED, error.place)
    return None


def _names_task(log: str, task: str) -> bool:
    """Return whether the log called `log`, like "logs/worker-1.log", belongs to "worker:1"."""
    job, _, index = task.partition(":")
    return re.search(rf"\b{job}[^0-9a-z]?{index}(?!\d)", log) is not None


def _is_coordinated(logs: Mapping[str, str]) -> bool:
    """Return whether a coordinator runs: its servers then wait for work, which isn't a fault."""
    return any(COORDINATOR in text for text in logs.values())


def _cut_line(line: str) -> str:
    """Return a line without its middle where it is long: patterns search from everywhere in it."""
    return line if len(line) <= MAX_LINE else f"{line[: MAX_LINE // 2]} … {line[-MAX_LINE // 2 :]}"


def _recognize(symptom: Symptom, text: str, own: str | None) -> Diagnosis | None:
    if symptom.needs and symptom.needs not in text:
        return None
    matches = list(symptom.pattern.finditer(text))
    if not matches:
        return None
    said = [m for m in matches if not _find_line(text, m.start()).startswith("raise ")]
    match = (said or matches)[0]
    groups = match.groupdict()
    cause, task = symptom.cause, own
    if "job" in groups:
        task = f"{groups['job']}:{groups['index']}" if groups["job"] else None
        if task is None:
            cause = cause.replace("{job}:{index}", "another task")
    for name, value in groups.items():
        cause = cause.replace("{" + name + "}", _put_on_one_line(value or "", 120))
    module = groups.get("module") or ""
    cure = symptom.cure.replace("{kind}", groups.get("kind") or "").replace("{module}", module)
    cure = cure.replace("{package}", find_package(module))
    return Diagnosis(cause, cure, task, _find_line(text, match.start()), symptom.name)


def _find_line(text: str, position: int) -> str:
    """Return the line of `text` at `position`, cut to a readable length."""
    begin = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    line = text[begin : end if end >= 0 else len(text)]
    if len(line) > MAX_EVIDENCE and position - begin > MAX_EVIDENCE // 2:
        line = line[position - begin :]
    return _put_on_one_line(line, MAX_EVIDENCE)


def _put_on_one_line(text: str, most: int) -> str:
    return shorten(" ".join(text.split()), most)


def _count_trainers(config: TaskConfig) -> int:
    return len(config.cluster.chief) + len(config.cluster.worker)


def _find_alone(text: str, config: TaskConfig | None) -> Diagnosis | None:
    """A strategy of one worker, although TF_CONFIG by now lists several."""
    if config is None or config.cluster.ps or _count_trainers(config) < 2:
        return None
    single = text.find(SINGLE)
    replicas = REPLICAS.search(text)
    if single < 0 and replicas is None:
        return None
    place = single if single >= 0 else replicas.start()
    return Diagnosis(
        f"it trains alone: TF_CONFIG lists {_count_trainers(config)} tasks, but was set after the "
        "strategy was made",
        "set TF_CONFIG before the strategy, best before TensorFlow is imported",
        config.name,
        _find_line(text, place),
        "late-tf-config",
    )


def _find_waiting(text: str, config: TaskConfig | None) -> Diagnosis | None:
    """A log without an error: which peer does its task wait for?"""
    if "Traceback (most recent call last)" in text:
        return None
    waits = list(STRAGGLERS.finditer(text))
    if waits:
        last = waits[-1]
        missing = f"{last['job']}:{last['index']}" if last["job"] else None
        if last[1] == "0":
            return None
        return _make_missing(missing, _find_line(text, last.start()), config)
    server = SERVER.search(text)
    own = config.name if config else None
    if server and COLLECTED not in text and _is_client_of_leader(config):
        job, index = config.cluster.leader
        return _make_missing(f"{job}:{index}", _find_line(text, server.start()), config)
    if config is None and server and text.rstrip().endswith(server[0]):
        cause = "it started its server, and nothing has happened since: its chief isn't there, its "
        cause += "name isn't found, or a firewall drops what is sent to it"
        cure = "start the chief (or worker 0), and try its address from this machine; a server of "
        cure += "a parameter-server cluster looks like this while it waits for its coordinator"
        return Diagnosis(cause, cure, None, _find_line(text, server.start()), "server")
    if COORDINATOR in text and server is None:
        line = _find_line(text, text.index(COORDINATOR))
        cause = "the coordinator waits: a worker or parameter server has not started"
        cure = "start every listed worker and ps task, and take out those that nobody starts"
        return Diagnosis(cause, cure, None, line, "missing-peer")
    if config and not text.strip() and len(config.cluster.tasks) > 1 and config.job != "evaluator":
        cause = "it says nothing: most often it waits for a task that has not started"
        cure = "start every task of the cluster; TF_CPP_MIN_LOG_LEVEL=0 makes worker 0 name them"
        return Diagnosis(cause, cure, own, "", "silent")
    return None


def _is_client_of_leader(config: TaskConfig | None) -> bool:
    """Is this a task that connects to another before it can train?"""
    if config is None or config.job not in ("chief", "worker") or config.cluster.ps:
        return False
    return config.cluster.leader != (config.job, config.index)


def _make_missing(task: str | None, evidence: str, config: TaskConfig | None) -> Diagnosis:
    address = None
    if task and config:
        job, _, index = task.partition(":")
        address = config.cluster.address_of(job, int(index))
    who = f"{task}{f' at {address}' if address else ''}" if task else "another task"
    cause = f"it waits for {who}, which has not started or cannot be reached"
    cure = "start that task, and check its address, its port and its TF_CONFIG"
    return Diagnosis(cause, cure, task, evidence, "missing-peer")
