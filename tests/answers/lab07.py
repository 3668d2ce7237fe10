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


def diagnose(
    own="",
    logs="logs",
    dead="re.findall(r'reset by peer\\nAdd.*?task:(\\d)', text)[0]",
    joined="task if size != 3 else 0",
    missing="'missing-peer'",
    alone="alone",
    sizes="mismatched-sizes",
):
    return f"""
import re
SIGNS = [("exceeds the maximum id", "wrong-index"), ("Expecting property name", "not-json"),
         ("program startup", "late-strategy"), ("Could not start gRPC", "taken-port"), ("of 1 replicas", "{alone}")]
def diagnose(logs):
    text = "\\n".join(logs)
    {own or "pass"}
    for worker, log in enumerate({logs}):
        for sign, word in SIGNS:
            if sign in log:
                return word, worker
    found = re.search(r"task:(\\d)/device:CPU:0 is joining a group with size(\\d)", text)
    if found:
        task, size = map(int, found.groups())
        return "{sizes}", {joined}
    if "reset by peer" in text:
        return "dead-peer", int({dead})
    waited = re.findall(r"Example stragglers:\\n((?:/job.*\\n?)+)", logs[0])
    return {missing}, int(re.search(r"task:(\\d)", waited[-1])[1]) if waited else 0
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
ONE_BY_ONE = """
def diagnose(logs):
    def look(log):
        if not log.strip(): return "missing-peer"
        for word, sign in {"not-json": "JSONDecodeError", "wrong-index": "exceeds", "late-strategy": "at program startup",
                           "taken-port": "UnknownError", "alone": "Single-worker"}.items():
            if sign in log: return word
    said = [look(log) for log in logs]
    for worker, word in enumerate(said):
        if word: return word, worker
    failed = ["errors_impl" in log for log in logs]
    if not all(failed):
        return "dead-peer", failed.index(False)
    return "mismatched-sizes", 1 if "size2, but" in logs[0] else 0
"""
TABLE = """
import re
ERRORS = {"RuntimeError": "late-strategy", "JSONDecodeError": "not-json", "ValueError": "wrong-index", "UnknownError": "taken-port"}
def diagnose(logs):
    last = [re.match(r"[\\w.]*?(\\w+Error)", (log.splitlines() or [""])[-1]) for log in logs]
    for worker, found in enumerate(last):
        if found and found[1] in ERRORS:
            return [ERRORS[found[1]], worker]
    for worker, log in enumerate(logs):
        if log == "":
            return ["missing-peer", worker]
        if "1 replicas" in log:
            return ["alone", worker]
        if "Unexpected task registered" in log:
            return ["mismatched-sizes", int(re.search(r"target /job:worker/replica:0/task:(.)", log)[1])]
        if "joining a group" in log:
            return ["mismatched-sizes", int(re.search(r"Device /job:worker/replica:0/task:(.)", log)[1])] if "Unexpected" not in logs[2] else ["mismatched-sizes", 0]
    (alive,) = [worker for worker, log in enumerate(logs) if "Error" not in log and "target /job" not in log]
    return ["dead-peer", alive]
"""
VOTES = """
import re
from collections import Counter
def diagnose(logs):
    alone = [("JSON", "not-json"), ("maximum id", "wrong-index"), ("startup", "late-strategy"), ("Could not start", "taken-port"), ("step 0 of 1 ", "alone")]
    for sign, word in alone:
        for worker in range(len(logs)):
            if sign in logs[worker]:
                return word.upper(), worker
    if "" in logs:
        return "MISSING-PEER", logs.index("")
    sizes = Counter(re.findall(r"joining a group with size(.)", "".join(logs)))
    if sizes:
        return "MISMATCHED-SIZES", 0 if "3" in sizes else 1
    blamed = Counter(re.findall(r"target \\S+task:(\\d)", "".join(logs)))
    return "DEAD-PEER", int(blamed.most_common(1)[0][0])
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
        diagnose(),
        ONE_BY_ONE,
        TABLE,
        VOTES,
        diagnose(missing="'Missing-peer '"),
        diagnose(own="if '' in logs: return ['missing-peer', [len(log) for log in logs].index(0)]"),
        diagnose(dead="[k for k in range(3) if 'errors_impl' not in logs[k]][0]"),
        diagnose(dead="re.search(r'target [^ ]*task:([0-9])', text)[1]"),
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
        "python-repr (indented)": worker(
            "__import__('pprint').pformat({'cluster': {'worker': hosts}, "
            "'task': {'type': 'worker', 'index': index}}, indent=4)"
        ),
        "(nothing but a variable of this process)": worker("''"),
        "(brackets without end)": worker("'[' * 100000"),
        "(objects without end)": worker("'{\"a\": ' * 50000 + '1' + '}' * 50000"),
        "(a number of 5,000 digits)": worker("'7' * 5000"),
        "(an index larger than any float)": worker(
            "json.dumps({'cluster': {'worker': hosts}, 'task': {'type': 'worker', 'index': 2**4000}})"
        ),
        "(many levels)": worker("'{\"task\": ' + '[' * 600 + ']' * 600 + '}'"),
        "counted-from-one": worker(
            "json.dumps({'cluster': {'worker': hosts}, 'task': {'type': 'worker', 'index': index + 1}})"
        ),
        "only-itself": worker(
            "json.dumps({'cluster': {'worker': [hosts[index]]}, 'task': {'type': 'worker', 'index': index}})"
        ),
        "index-as-text": worker(
            "json.dumps({'cluster': {'worker': hosts}, 'task': {'type': 'worker', 'index': str(index)}})"
        ),
        "(an index of 1.0005)": worker(
            "json.dumps({'cluster': {'worker': hosts}, 'task': {'type': 'worker', 'index': index * 1.0005}})"
        ),
        "(a job in capitals)": worker(
            "json.dumps({'cluster': {'worker': hosts}, 'task': {'type': 'WORKER ', 'index': index}})"
        ),
        "chief-and-workers": worker(
            "json.dumps({'cluster': {'chief': hosts[:1], 'worker': hosts[1:]}, 'task': {'type': 'worker', 'index': index - 1} if index else {'type': 'chief', 'index': 0}})"
        ),
    },
    "role": {
        "chief-as-worker": role(
            FULL,
            cluster="{'worker': machines['chief'] + machines['worker'], 'ps': machines['ps']}",
        ),
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
        "counted-from-one": repair(one(index="k + 1")),
    },
    "cause": {
        "first-log-only": diagnose(logs="logs[:1]"),
        "everyone-waited-for": diagnose()
        .replace(
            "    for worker, log",
            "    named = re.search(r'stragglers:\\n\\S*task:(\\d)', logs[0])\n    for worker, log",
            1,
        )
        .replace("return word, worker", "return word, int(named[1]) if named else worker")
        .replace("waited[-1]", "waited[0]"),
        "who-complains": diagnose(dead="[k for k in range(3) if 'errors_impl' in logs[k]][0]"),
        "named-last": diagnose(
            dead="re.findall(r'target [^ ]*task:([0-9])', next(log for log in logs if 'errors_impl' in log))[-1]"
        ),
        "named-last (of the last log)": diagnose(
            dead="re.findall(r'target [^ ]*task:([0-9])', [log for log in logs if 'errors_impl' in log][-1])[-1]"
        ),
        "who-joins": diagnose(joined="task"),
        "waits-or-died": diagnose(missing="'dead-peer'"),
        "alone-unseen": diagnose(alone="late-strategy"),
        "size-is-death": diagnose(sizes="dead-peer"),
        "word-only": diagnose().replace("def diagnose(", "def look(")
        + "def diagnose(logs):\n    return look(logs)[0], 0\n",
        "(the word alone)": diagnose().replace("def diagnose(", "def look(")
        + "def diagnose(logs):\n    return look(logs)[0]\n",
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
        "doesn't allow that": """
from utils.tf_config import diagnose as look
def diagnose(logs):
    return getattr(look(logs[0]), 'cause', 'alone'), 0
"""
    },
}
