"""The linter: what is wrong with a TF_CONFIG, where, and what to write instead.

`lint` looks at one TF_CONFIG, `lint_together` at all of a cluster's.
"""

import ast
import json
import shlex
from collections.abc import Mapping
from typing import Any

from ..checks import check_choice
from ..errors import InputError
from .rules import (
    TAKES_SERVERS,
    LintFinding,
    check_addresses,
    check_cluster,
    check_keys,
    check_membership,
    check_roles,
    check_task,
    is_right,
    show,
)
from .spec import JOBS, ClusterSpec, TaskConfig, describe_role

STRATEGIES = tuple(TAKES_SERVERS)
CURLY_QUOTES = "\u201c\u201d\u2018\u2019"
DUMPS = "write json.dumps(config), not str(config)"
Named = Mapping[str, TaskConfig]


def lint(text: str, strategy: str | None = None) -> list[LintFinding]:
    """Return the findings on one TF_CONFIG, `text`, errors first; a correct one has only notes.

    `strategy`, "multi-worker" or "parameter-server", adds what that strategy needs. Raises
    InputError for another strategy.

        >>> lint('{"cluster": {"worker": ["a:1"]}}')[0].severity
        'error'
    """
    return examine(text, strategy)[1]


def examine(text: str, strategy: str | None = None) -> tuple[TaskConfig | None, list[LintFinding]]:
    """Return the configuration, None unless it could be read as one, and the findings."""
    if strategy is not None:
        check_choice("strategy", strategy, STRATEGIES)
    value, found = read_object(text)
    if value is None:
        return None, found
    found += check_keys(value)
    jobs, faults = check_cluster(value["cluster"]) if "cluster" in value else ({}, [])
    found += faults
    task, faults = check_task(value["task"]) if "task" in value else (None, [])
    found += faults
    found += check_addresses(jobs, task)
    if jobs and task:
        found += check_membership(jobs, *task)
    found += check_roles(jobs, task, strategy)
    config = _make_config(value, jobs, task)
    if config and is_right(found):
        found.append(LintFinding("note", "task", f"{config.name}: {describe_role(config)}"))
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


def parse_tf_config(text: str, strategy: str | None = None) -> TaskConfig:
    """Return the configuration in `text`, a TF_CONFIG; raise InputError with its first error.

    `strategy` is as in `lint`.

        >>> parse_tf_config(build_tf_configs(build_cluster(workers=2))["worker:1"]).index
        1
    """
    config, findings = examine(text, strategy)
    if config is None or not is_right(findings):
        worst = findings[0]
        raise InputError(f"TF_CONFIG: {worst.where}: {worst.what}; {worst.cure}")
    return config


def lint_together(
    texts: Mapping[str, str], strategy: str | None = None
) -> list[tuple[str, LintFinding]]:
    """Return (name, finding) for every text, then for what is wrong between them.

    `texts` is name -> TF_CONFIG; the name is a file or a task. `strategy` is as in `lint`.
    Between them, the cluster must be the same everywhere, each task claimed once, and none
    missing. Findings that concern all of them have the name "together". Raises InputError as
    `lint` does.

        >>> texts = build_tf_configs(build_cluster(workers=2))
        >>> any(finding.severity == "error" for _, finding in lint_together(texts))
        False
    """
    found: list[tuple[str, LintFinding]] = []
    configs: dict[str, TaskConfig] = {}
    for name, text in texts.items():
        config, findings = examine(text, strategy)
        found += [(name, finding) for finding in findings]
        if config:
            configs[name] = config
    members = {n: c for n, c in configs.items() if c.job != "evaluator"}
    found += [("together", finding) for finding in _compare_clusters(members)]
    found += [("together", finding) for finding in _find_doubled(configs)]
    if len(configs) == len(texts):
        found += [("together", finding) for finding in _find_missing(members)]
    return found


def _compare_clusters(configs: Named) -> list[LintFinding]:
    """Every member must list the same addresses in the same order."""
    found = []
    names = list(configs)
    for name in names[1:]:
        difference = _find_difference(configs[names[0]], configs[name], names[0], name)
        if difference:
            cure = "give every task the same cluster, in the same order"
            found.append(LintFinding("error", difference[0], difference[1], cure))
    return found


def _find_difference(
    first: TaskConfig, other: TaskConfig, first_name: str, name: str
) -> tuple[str, str] | None:
    mine, theirs = first.cluster.jobs, other.cluster.jobs
    for job in dict.fromkeys([*mine, *theirs]):
        counts = len(mine.get(job, [])), len(theirs.get(job, []))
        if counts[0] != counts[1]:
            what = f"{first_name} lists {counts[0]} {job} tasks, {name} {counts[1]}"
            return f"cluster.{job}", what
        for index, (here, there) in enumerate(zip(mine.get(job, []), theirs.get(job, []))):
            if here != there:
                what = f"{first_name} has {show(here)}, {name} {show(there)}"
                return f"cluster.{job}[{index}]", what
    return None


def _find_doubled(configs: Named) -> list[LintFinding]:
    claims: dict[str, list[str]] = {}
    for name, config in configs.items():
        claims.setdefault(config.name, []).append(name)
    cure = "give each process an index of its own"
    return [
        LintFinding(
            "error",
            "task",
            f"{' and '.join(names)} are all {task}"
            if len(names) > 2
            else f"{' and '.join(names)} are both {task}",
            cure,
        )
        for task, names in claims.items()
        if len(names) > 1
    ]


def _find_missing(members: Named) -> list[LintFinding]:
    """Name the tasks that the clusters list and that no configuration claims."""
    if not members:
        return []
    present = {(config.job, config.index) for config in members.values()}
    listed = dict.fromkeys(
        task
        for config in members.values()
        for task in config.cluster.tasks
        if task[0] != "evaluator"
    )
    found = [
        LintFinding(
            "error",
            f"{job}:{index}",
            "is in the cluster, and no configuration here is for it: the others wait",
            f'add one with "task": {{"type": "{job}", "index": {index}}}',
        )
        for job, index in listed
        if (job, index) not in present
    ]
    cluster = next(iter(members.values())).cluster
    if cluster.ps and not cluster.chief:
        what = "no chief among them: the servers wait until a coordinator connects"
        found.append(
            LintFinding("warning", "chief:0", what, 'list a "chief", or start one next to them')
        )
    return found


def read_object(text: str) -> tuple[dict[str, Any] | None, list[LintFinding]]:
    """Return the JSON object in `text`, or None, and what is wrong with the text.

    A key that appears twice is an error: JSON keeps the last one without a word.
    """
    if not text.strip():
        what = "is empty, which TensorFlow cannot read"
        return None, [_fault(what, "unset TF_CONFIG to train on one machine, or write an object")]
    doubled: list[str] = []

    def keep(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        doubled.extend(key for key in dict.fromkeys(keys) if keys.count(key) > 1)
        return dict(pairs)

    try:
        value = json.loads(text, object_pairs_hook=keep)
    except RecursionError:
        return None, [_fault("is nested too deeply", "write {'cluster': …, 'task': …}")]
    except ValueError as error:
        return None, [_explain(text, error)]
    if isinstance(value, str):
        return None, [_fault("is a JSON string, not an object", "call json.dumps once, not twice")]
    if not isinstance(value, dict):
        what = f"is a JSON {type(value).__name__}, not an object"
        return None, [_fault(what, 'write {"cluster": …, "task": …}')]
    cure = "keep one: of two, JSON reads the last"
    return value, [
        LintFinding("error", key, f"the key {show(key)} appears twice", cure)
        for key in dict.fromkeys(doubled)
    ]


def split_texts(text: str) -> list[str]:
    """Return the configurations in the text of a file: one, or one a line.

    Reads what `distlab tf-config build` prints: an object, several lines each with
    one, or shell lines `export TF_CONFIG='…'` (comments and blank lines between).
    Other text is returned unchanged, for the linter to judge.
    """
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    values = [_unwrap(line) for line in lines]
    if lines and all(value is not None for value in values):
        return [value for value in values if value is not None]
    return [text]


def _unwrap(line: str) -> str | None:
    """Return the configuration that a line holds alone, or None."""
    if line.startswith("{") and line.endswith("}"):
        return line
    if not line.startswith(("export TF_CONFIG=", "TF_CONFIG=")):
        return None
    try:
        words = shlex.split(line)
    except ValueError:
        return None
    return next(word for word in words if "=" in word).partition("=")[2]


def _explain(text: str, error: ValueError) -> LintFinding:
    """Say which of the usual mistakes made the text no JSON."""
    stripped = text.strip()
    if any(quote in text for quote in CURLY_QUOTES):
        return _fault("is not JSON: it has typographic quotes", 'write straight ones: "')
    if stripped[0] in "'\"" and stripped[0] == stripped[-1] and "{" in stripped:
        cure = "quote the value once, in the shell only"
        return _fault("is not JSON: the shell's quotes are part of the value", cure)
    if "'" in text and _is_python_dict(stripped):
        return _fault("is not JSON but a Python dict as str() prints it", DUMPS)
    if "'" in text:
        what = "is not JSON: single quotes round names or addresses"
        return _fault(what, f"JSON knows double quotes only; {DUMPS}")
    return _explain_place(stripped, error)


def _explain_place(text: str, error: ValueError) -> LintFinding:
    if not isinstance(error, json.JSONDecodeError):
        return _fault(f"is not JSON: {error}", DUMPS)
    place = f"line {error.lineno}, column {error.colno}"
    before = text[: error.pos].rstrip()
    if not text.startswith("{"):
        cure = "give the JSON itself, not a file name or a command"
        return _fault(f"is not JSON: it begins with {show(text[:20])}", cure)
    comma = before.endswith(",") and text[error.pos :].startswith(("]", "}"))
    if comma or error.msg.startswith("Illegal trailing"):
        return _fault(f"is not JSON: a comma too many before {place}", "take the last comma away")
    if error.pos >= len(text) - 1 and error.msg.startswith(("Expecting", "Unterminated")):
        return _fault("is not JSON: it ends too early", "close every quote, bracket and brace")
    return _fault(f"is not JSON at {place}: {error.msg}", DUMPS)


def _is_python_dict(text: str) -> bool:
    try:
        return isinstance(ast.literal_eval(text), dict)
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return False


def _fault(what: str, cure: str) -> LintFinding:
    return LintFinding("error", "TF_CONFIG", what, cure)
