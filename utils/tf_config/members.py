"""The configurations of all members of one cluster, linted together."""

from collections.abc import Mapping

from .findings import Finding, show
from .linting import examine
from .spec import TaskConfig

Named = Mapping[str, TaskConfig]


def lint_together(
    texts: Mapping[str, str], strategy: str | None = None
) -> list[tuple[str, Finding]]:
    """Return (name, finding) for every text, then what is wrong between them.

    `texts` is name -> TF_CONFIG, the name being a file or a task. Between them: the
    cluster is the same everywhere, each task is claimed once, and none is missing.
    Findings that concern all of them have the name "together".
    """
    found: list[tuple[str, Finding]] = []
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


def _compare_clusters(configs: Named) -> list[Finding]:
    """Every member must list the same addresses in the same order."""
    found = []
    names = list(configs)
    for name in names[1:]:
        difference = _find_difference(configs[names[0]], configs[name], names[0], name)
        if difference:
            cure = "give every task the same cluster, in the same order"
            found.append(Finding("error", difference[0], difference[1], cure))
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


def _find_doubled(configs: Named) -> list[Finding]:
    claims: dict[str, list[str]] = {}
    for name, config in configs.items():
        claims.setdefault(config.name, []).append(name)
    cure = "give each process an index of its own"
    return [
        Finding("error", "task", f"{' and '.join(names)} are all {task}"
                if len(names) > 2 else f"{' and '.join(names)} are both {task}", cure)
        for task, names in claims.items() if len(names) > 1
    ]  # fmt: skip


def _find_missing(members: Named) -> list[Finding]:
    """Name the tasks that the clusters list and nobody is."""
    if not members:
        return []
    present = {(config.job, config.index) for config in members.values()}
    listed = dict.fromkeys(
        task for config in members.values() for task in config.cluster.tasks
        if task[0] != "evaluator"
    )  # fmt: skip
    found = [
        Finding("error", f"{job}:{index}", "is in the cluster and nobody is it: the others wait",
                f"start a process with task type {job}, index {index}")
        for job, index in listed if (job, index) not in present
    ]  # fmt: skip
    cluster = next(iter(members.values())).cluster
    if cluster.ps and not cluster.chief:
        what = "no chief among them: the servers wait until a coordinator connects"
        found.append(Finding("warning", "chief:0", what, 'list a "chief", or start one beside'))
    return found
