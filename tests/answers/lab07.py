# ruff: noqa: E501
"""Lab 07: answers that must pass, in several styles, and answers that must be refused by name."""

JSON = "import json\n"


def worker(expression):
    return f"{JSON}def write_config(hosts, index):\n    return {expression}\n"


def role(expression, cluster='{j: machines[j] for j in ("chief", "worker", "ps")}', before="pass"):
    return f"""{JSON}def write_role(machines, job, index):
    {before}
    cluster = {cluster}
    return {expression}
"""


def repair(expression):
    return f"""{JSON}def repair(configs):
    read = [json.loads(c) for c in configs]
    hosts = read[0]["cluster"]["worker"]
    return [{expression} for k, c in enumerate(read)]
"""


def one(cluster="{'worker': hosts}", index="k"):
    return f"json.dumps({{'cluster': {cluster}, 'task': {{'type': 'worker', 'index': {index}}}}})"


SIGNS = """[
    ("exceeds the maximum id", "wrong-index"), ("Expecting property name", "not-json"),
    ("program startup", "late-strategy"), ("Could not start gRPC", "taken-port"),
    ("joining a group", "{size}"), ("unhealthy", "dead-peer"),
    ("1 replicas", "{alone}"), ("Waiting for", "{waiting}"),
]"""


def cause(size="mismatched-sizes", alone="alone", waiting="missing-peer", first=""):
    signs = SIGNS.format(size=size, alone=alone, waiting=waiting)
    return f"""
def name_cause(log):
    {first or "pass"}
    for sign, word in {signs}:
        if sign in log:
            return word
"""


FULL = "json.dumps({'cluster': cluster, 'task': {'type': job, 'index': index}})"
BY_HAND = """
def write_config(hosts, index):
    listed = ", ".join(f'"{h}"' for h in hosts)
    return '{"cluster": {"worker": [' + listed + ']}, "task": {"type": "worker", "index": %d}}' % index
"""
BUILT = """
from utils.tf_config import build_cluster, build_tf_config
import json
def write_config(hosts, index):
    config = json.loads(json.dumps({"cluster": {"worker": tuple(hosts)}}, indent=2))
    config["task"] = dict(index=int(index), type="worker")
    return json.dumps(config, indent=4, sort_keys=True)
"""
IN_PLACE = (
    JSON
    + """
def repair(configs):
    right = json.loads(configs[0])
    repaired = []
    for place, text in enumerate(configs):
        config = json.loads(text)
        config["cluster"] = right["cluster"]
        config["task"]["index"] = place
        repaired.append(json.dumps(config))
    return tuple(repaired)
"""
)
IN_THE_LIST = (
    JSON
    + """
def repair(configs):
    cluster = json.loads(configs[0])["cluster"]
    for place in range(len(configs)):
        config = json.loads(configs[place])
        config.update(cluster=cluster, task={"type": "worker", "index": place})
        configs[place] = json.dumps(config)
    return configs
"""
)
WITH_RE = """
import re
def name_cause(log):
    last = log.strip().splitlines()[-1]
    if re.search(r"JSONDecodeError", last): return "not-json"
    if re.search(r"exceeds the maximum id", last): return "wrong-index"
    if last.startswith("RuntimeError"): return "late-strategy"
    if re.search(r"step \\d+ of 1 replicas", last): return "alone"
    if "UnknownError" in last: return "taken-port"
    if re.search("group with size", log): return "mismatched-sizes"
    if "heartbeats" in log: return "dead-peer"
    return "missing-peer"
"""
RIGHT = {
    "worker": [
        worker(
            "json.dumps({'cluster': {'worker': hosts}, 'task': {'type': 'worker', 'index': index}})"
        ),
        worker(
            "json.dumps(dict(task=dict(index=index, type='worker'), cluster=dict(worker=list(hosts))), indent=1)"
        ),
        BY_HAND,
        BUILT,
    ],
    "role": [
        role(FULL),
        role(
            FULL,
            cluster="dict(machines)",
            before="machines = dict(machines); machines.pop('evaluator', None)",
        ),
        role(FULL, cluster="machines", before="machines.pop('evaluator')"),
        role(FULL, cluster="{j: list(m) for j, m in machines.items() if j != 'evaluator'}"),
    ],
    "repair": [
        repair(one()),
        IN_PLACE,
        IN_THE_LIST,
        repair(
            "json.dumps({**c, 'cluster': read[0]['cluster'], 'task': {**c['task'], 'index': k}})"
        ),
    ],
    "cause": [cause(), WITH_RE, cause().replace("return word", "return word.upper()")],
}
WRONG = {
    "worker": {
        "dictionary": worker(
            "{'cluster': {'worker': hosts}, 'task': {'type': 'worker', 'index': index}}"
        ),
        "python-repr": worker(
            "str({'cluster': {'worker': hosts}, 'task': {'type': 'worker', 'index': index}})"
        ),
        "counted-from-one": worker(
            "json.dumps({'cluster': {'worker': hosts}, 'task': {'type': 'worker', 'index': index + 1}})"
        ),
        "only-itself": worker(
            "json.dumps({'cluster': {'worker': [hosts[index]]}, 'task': {'type': 'worker', 'index': index}})"
        ),
        "index-as-text": worker(
            "json.dumps({'cluster': {'worker': hosts}, 'task': {'type': 'worker', 'index': str(index)}})"
        ),
    },
    "role": {
        "evaluator-listed": role(FULL, cluster="machines"),
        "servers-forgotten": role(FULL, cluster="{j: machines[j] for j in ('chief', 'worker')}"),
        "called-master": role(
            FULL,
            cluster="{'master': machines['chief'], 'worker': machines['worker'], 'ps': machines['ps']}",
            before="job = 'master' if job == 'chief' else job",
        ),
        "numbered-through": role(
            FULL,
            before="jobs = ['chief', 'worker', 'ps', 'evaluator']; index += sum(len(machines[j]) for j in jobs[:jobs.index(job)])",
        ),
    },
    "repair": {
        "only-indexes": repair(one("c['cluster']")),
        "only-clusters": repair(one(index="c['task']['index']")),
        "sorted": repair(one("{'worker': sorted(hosts)}")),
        "all-the-first": repair(one(index="0")),
    },
    "cause": {
        "waits-or-died": cause(waiting="dead-peer"),
        "alone-unseen": cause(alone="late-strategy"),
        "port-for-all": cause(
            first="if any(s in log for s in ('Waiting for', 'unhealthy', 'joining a group')): return 'taken-port'"
        ),
        "size-is-death": cause(size="dead-peer"),
    },
}
