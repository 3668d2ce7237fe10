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
DUMPED_PARTS = """
import json
def write_config(hosts, index):
    return '{"cluster": ' + json.dumps({"worker": hosts}) + ', "task": ' + json.dumps({"index": index, "type": "worker"}) + "}"
"""
STEP_BY_STEP = """
import json
def write_config(hosts, index):
    config = {}
    config["cluster"] = {}
    config["cluster"]["worker"] = []
    for host in hosts:
        config["cluster"]["worker"].append(str(host))
    config["task"] = {"type": "worker"}
    config["task"]["index"] = index
    return json.dumps(config, separators=(",", ":"))
"""
FORMATTED = """
def write_config(hosts, index):
    quoted = str([str(host) for host in hosts]).replace("'", chr(34))
    return f'{{"task": {{"index": {index}, "type": "worker"}}, "cluster": {{"worker": {quoted}}}}}'
"""
WITH_ENVIRONMENT = """
from json import JSONEncoder
def write_config(hosts, index):
    return JSONEncoder(indent=2).encode(dict(cluster={"worker": [*hosts]}, task={"type": "worker", "index": index}, environment="cloud"))
"""
TEMPLATE_ROLE = """
import json
def write_role(machines, job, index):
    template = '{"cluster": {"chief": %s, "worker": %s, "ps": %s}, "task": {"type": "%s", "index": %d}}'
    return template % (*(json.dumps(machines[k]) for k in ("chief", "worker", "ps")), job, index)
"""
DELETED_ROLE = """
import copy, json
def write_role(machines, job, index):
    cluster = copy.deepcopy(machines)
    del cluster["evaluator"]
    return json.dumps({"task": {"index": index, "type": str(job)}, "cluster": cluster}, indent=2)
"""
SORTED_ROLE = """
import json
def write_role(machines, job, index):
    wanted = set(machines) - {"evaluator"}
    cluster = {name: machines[name] for name in sorted(wanted)}
    config = dict(cluster=cluster, task=dict(type=job, index=index))
    return json.dumps(config, sort_keys=True)
"""
BRANCHES_ROLE = """
import json
def write_role(machines, job, index):
    cluster = {"ps": machines["ps"], "worker": machines["worker"], "chief": machines["chief"]}
    if job == "evaluator":
        task = {"type": "evaluator", "index": index}
    elif job == "chief":
        task = {"type": "chief", "index": index}
    else:
        task = {"type": job, "index": index}
    return json.dumps({"cluster": cluster, "task": task})
"""
REPLACED_TEXT = """
import json, re
def repair(configs):
    first = configs[0]
    return [re.sub(r'"index": *[0-9]+', '"index": %d' % k, first) for k in range(len(configs))]
"""
RENUMBERED = """
import json
def repair(configs):
    hosts = json.loads(configs[0])["cluster"]["worker"]
    return [json.dumps({"cluster": {"worker": hosts}, "task": {"type": "worker", "index": hosts.index(h)}}) for h in hosts]
"""
COPIED = """
import copy, json
def repair(configs):
    right, fixed = json.loads(configs[0]), []
    while len(fixed) < len(configs):
        one = copy.deepcopy(right)
        one["task"]["index"] = len(fixed)
        fixed.append(json.dumps(one))
    return fixed
"""
WITH_MAP = """
import json
from itertools import count
def repair(configs):
    right = json.loads(configs[0])
    return list(map(lambda k, _: json.dumps(right | {"task": right["task"] | {"index": k}}), count(), configs))
"""
IF_CHAIN = """
def name_cause(log):
    if "JSON" in log:
        return "not-json"
    if "maximum id" in log:
        return "wrong-index"
    if "program startup" in log:
        return "late-strategy"
    if "Could not start" in log:
        return "taken-port"
    if "that group has size" in log:
        return "mismatched-sizes"
    if "heartbeat" in log or "unhealthy" in log:
        return "dead-peer"
    if "Waiting for" in log:
        return "missing-peer"
    return "alone"
"""
SCORES = """
import re
SIGNS = {"missing-peer": r"Waiting for \\d+/\\d+ tasks", "taken-port": r"start gRPC server", "wrong-index": r"exceeds",
         "not-json": r"JSONDecode", "alone": r"of 1 replicas", "late-strategy": r"configured at program",
         "dead-peer": r"heartbeats", "mismatched-sizes": r"group has size"}
ORDER = ["wrong-index", "not-json", "late-strategy", "taken-port", "mismatched-sizes", "dead-peer", "alone", "missing-peer"]
def name_cause(log):
    found = [word for word in ORDER if re.search(SIGNS[word], log)]
    return found[0]
"""
LINES = """
def name_cause(log):
    lines = [line.lower() for line in log.splitlines()]
    def says(*words):
        return any(all(word in line for word in words) for line in lines)
    if says("jsondecodeerror"): return "not-json"
    if says("exceeds", "id"): return "wrong-index"
    if says("collective ops", "startup"): return "late-strategy"
    if says("grpc server", "could not"): return "taken-port"
    if says("group", "size"): return "mismatched-sizes"
    if says("heartbeats"): return "dead-peer"
    return "missing-peer" if says("waiting for", "tasks") else "alone"
"""
MATCH = """
def name_cause(log):
    text = " ".join(log.split())
    for word, signs in {
        "not-json": ["JSONDecodeError"],
        "wrong-index": ["exceeds the maximum"],
        "late-strategy": ["at program startup"],
        "taken-port": ["Could not start gRPC server"],
        "mismatched-sizes": ["joining a group with size"],
        "dead-peer": ["stopped sending heartbeats"],
        "missing-peer": ["Example stragglers"],
    }.items():
        if all(sign in text for sign in signs):
            return word
    return "alone"
"""
WITH_COUNTS = """
def name_cause(log):
    table = [("not-json", "JSONDecodeError"), ("wrong-index", "exceeds the maximum id"), ("late-strategy", "must be configured"),
             ("taken-port", "Could not start"), ("mismatched-sizes", "but that group"), ("dead-peer", "unhealthy"),
             ("missing-peer", "stragglers"), ("alone", "1 replicas")]
    counted = [(log.count(sign) > 0) for _, sign in table]
    return table[counted.index(True)][0]
"""
RIGHT = {
    "worker": [
        'from string import Template\nTEXT = Template(\'{"cluster": {"worker": $w}, "task": {"type": "worker", "index": $i}}\')\n'
        + worker("TEXT.substitute(w=str(hosts).replace(\"'\", '\"'), i=index)"),
        worker(
            "json.dumps({'cluster': {'worker': hosts}, 'task': {'type': 'worker', 'index': index}})"
        ),
        worker(
            "json.dumps(dict(task=dict(index=index, type='worker'), cluster=dict(worker=list(hosts))), indent=1)"
        ),
        BY_HAND,
        BUILT,
        DUMPED_PARTS,
        STEP_BY_STEP,
        FORMATTED,
        WITH_ENVIRONMENT,
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
        TEMPLATE_ROLE,
        DELETED_ROLE,
        SORTED_ROLE,
        BRANCHES_ROLE,
    ],
    "repair": [
        repair(one()),
        IN_PLACE,
        IN_THE_LIST,
        repair(
            "json.dumps({**c, 'cluster': read[0]['cluster'], 'task': {**c['task'], 'index': k}})"
        ),
        REPLACED_TEXT,
        RENUMBERED,
        COPIED,
        WITH_MAP,
    ],
    "cause": [
        cause(),
        WITH_RE,
        cause().replace("return word", "return word.upper()"),
        IF_CHAIN,
        SCORES,
        LINES,
        MATCH,
        WITH_COUNTS,
    ],
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
        "chief-and-workers": worker(
            "json.dumps({'cluster': {'chief': hosts[:1], 'worker': hosts[1:]}, 'task': {'type': 'worker', 'index': index - 1} if index else {'type': 'chief', 'index': 0}})"
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
        "evaluator-lists-itself": role(
            FULL,
            cluster="{j: m for j, m in machines.items() if job == 'evaluator' or j != 'evaluator'}",
        ),
        "evaluator-as-worker": role(FULL, before="job = 'worker' if job == 'evaluator' else job"),
        "evaluator-alone": role(
            FULL,
            cluster="{j: machines[j] for j in (['evaluator'] if job == 'evaluator' else ['chief', 'worker', 'ps'])}",
        ),
    },
    "repair": {
        "(the list as it came)": "def repair(configs):\n    return configs\n",
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

REFUSED = {
    "worker": {
        "calls utils.tf_config": """
from utils.tf_config import build_cluster, build_tf_config
def write_config(hosts, index):
    return build_tf_config(build_cluster(workers=len(hosts), hosts=list(hosts)), "worker", index)
"""
    },
    "cause": {
        "does not allow that": """
from utils.tf_config import diagnose
def name_cause(log):
    return getattr(diagnose(log), 'cause', 'alone')
"""
    },
}
