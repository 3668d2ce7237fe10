# %% [markdown] shows="Write and repair TF_CONFIGs; find the machine and the cause in three workers' logs"
# # Lab 07 · Cluster doctor
#
# A cluster that won't start is quiet or cryptic, and rarely both helpful and polite. Here you write TF_CONFIG for every task of a cluster, repair a set of them that disagree, and tell from three logs which machine broke a cluster, and how.
#
# **Time:** 50 minutes · **Points:** 10 · **Hardware:** any computer; nothing here starts TensorFlow
#
# Lesson 08 has the ideas. Elsewhere `distlab tf-config lint` and `utils.tf_config` do this work for you. Here you do it yourself, with Python's `json`. When you submit, other cases are drawn from another `SEED`. The lines between `BEGIN INPUTS` and `END INPUTS` draw them; leave those as they are.
#
# {{absent}}

# %%
import json
import re

import numpy as np

from distlab.labs.lab07 import exercise as lab07

# %%
SEED = 2026

# %% [markdown]
# ## Exercise 1: one worker's TF_CONFIG
#
# **1 point · easy · 6 minutes**
#
# **Contract.** `write_config(hosts, index)` takes a list with the addresses of all workers in order, each "host:port", and the index of one of them, from 0. It returns the text for that worker's TF_CONFIG: JSON with `cluster` and `task`.
#
# **Example.** For the hosts `["a:1", "b:1"]` and index 1:
# `{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}`
#
# <details><summary>Hint 1</summary>
#
# What differs between the workers' texts? One number.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `json.dumps` makes JSON from dictionaries, lists, strings and numbers. `str` doesn't.
#
# </details>
# <details><summary>Worked idea</summary>
#
# A cluster of one worker, `["a:1"]`: the cluster is `{"worker": ["a:1"]}`, the task `{"type": "worker", "index": 0}`. Put both into one dictionary, then into one string.
#
# </details>


# %% nbgrader={"grade_id": "worker", "solution": true}
def write_config(hosts, index):
    ### BEGIN SOLUTION
    # The cluster is the same text on every machine, so only the task is made from the index.
    # str() of the same dictionary looks alike, but has single quotes, which isn't JSON.
    task = {"type": "worker", "index": index}
    return json.dumps({"cluster": {"worker": list(hosts)}, "task": task})
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "worker-test", "points": 1}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 1])
worker_cases = []
for _workers in (2, 5):
    _hosts = [f"10.0.{rng.integers(256)}.{rng.integers(256)}:2222" for _ in range(_workers)]
    worker_cases.append((_hosts, int(rng.integers(1, _workers))))
worker_cases.append((_hosts, 0))
### END INPUTS
got_configs = lab07.WORKER.observe(write_config, worker_cases)
lab07.WORKER.check(write_config)  # stops after 20 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab07 import judge as judges

judges.WORKER.judge(worker_cases, got_configs)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 2: four roles
#
# **2 points · medium · 10 minutes**
#
# **Contract.** `write_role(machines, job, index)` takes a dictionary from job to addresses, with the keys "chief", "worker", "ps" and "evaluator", and one task: its job and its index within that job. It returns that task's TF_CONFIG as text. The cluster holds the coordinator (job "chief"), the workers and the parameter servers, and it's the same for every task. The evaluator is outside: no cluster lists it, not even the one in its own TF_CONFIG. Its *task* says what it is. (TensorFlow also accepts an evaluator with its own cluster. In this exercise it gets everyone's.)
#
# **Example.** With one machine per job, `"chief": ["a:1"]` and so on, the parameter server's task is `{"type": "ps", "index": 0}`, next to the same cluster as everyone's.
#
# <details><summary>Hint 1</summary>
#
# The cluster doesn't depend on `job` and `index` at all.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Which three of the four keys of `machines` belong in it?
#
# </details>
# <details><summary>Worked idea</summary>
#
# Machines a (chief), b and c (workers), d (ps), e (evaluator). Everyone's cluster is `{"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}`. The evaluator's task is `{"type": "evaluator", "index": 0}`.
#
# </details>


# %% nbgrader={"grade_id": "role", "solution": true}
def write_role(machines, job, index):
    ### BEGIN SOLUTION
    # Naming the three jobs leaves the evaluator out of every cluster, its own included.
    # Deleting its key from `machines` works too, but changes the caller's dictionary.
    cluster = {name: machines[name] for name in ("chief", "worker", "ps")}
    return json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "role-test", "points": 2}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 2])
_counts = {"chief": 1, "worker": int(rng.integers(2, 6)), "ps": int(rng.integers(2, 4))}
_counts["evaluator"] = 1
_machines = {
    name: [f"{name}-{rng.integers(10**6)}:{rng.integers(2000, 9000)}" for _ in range(count)]
    for name, count in _counts.items()
}
role_cases = [(dict(_machines), name, count - 1) for name, count in _counts.items()]
### END INPUTS
got_roles = lab07.ROLE.observe(write_role, role_cases)
lab07.ROLE.check(write_role)  # stops after 20 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab07 import judge as judges

judges.ROLE.judge(role_cases, got_roles)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 3: repair a cluster
#
# **2 points · medium · 10 minutes**
#
# The TF_CONFIGs of a cluster were copied from machine to machine and edited by hand. Now they disagree, so the cluster waits forever or stops.
#
# **Contract.** `repair(configs)` takes a list of TF_CONFIG texts, one for each worker, in the order of the workers. Worker 0's text is right, and so is its list of machines. It returns the list of repaired texts, in the same order: all with the same machines in the same order, and each with its own index.
#
# **Example.** The check cell breaks three of four configurations: one has an index that's already used, one has a list that's a machine short, one has the machines in another order.
#
# <details><summary>Hint 1</summary>
#
# `json.loads` reads a string. What can you take over from worker 0's unchanged?
#
# </details>
# <details><summary>Hint 2</summary>
#
# `enumerate(configs)` gives each text with its place in the list.
#
# </details>
# <details><summary>Worked idea</summary>
#
# Two workers. The first lists a before b; the second has `{"cluster": {"worker": ["b:1", "a:1"]}, "task": {"type": "worker", "index": 0}}`. Repaired, the second has the first's list and index 1.
#
# </details>


# %% nbgrader={"grade_id": "repair", "solution": true}
def repair(configs):
    ### BEGIN SOLUTION
    # Nothing but worker 0's cluster is trusted: the index is the place in the list.
    # Correcting only what looks wrong misses a list of machines in another order.
    cluster = json.loads(configs[0])["cluster"]
    tasks = [{"type": "worker", "index": index} for index in range(len(configs))]
    return [json.dumps({"cluster": cluster, "task": task}) for task in tasks]
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "repair-test", "points": 2}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 3])
repair_cases = []
for _workers in (4, 6):
    _hosts = [f"10.1.{rng.integers(256)}.{rng.integers(256)}:2222" for _ in range(_workers)]
    _hosts.sort(reverse=True)
    repair_cases.append((_hosts, *(int(n) for n in 1 + rng.permutation(_workers - 1)[:3])))
repair_cases.append((_hosts, 1, len(_hosts) - 1, 2))
### END INPUTS
got_repaired = lab07.REPAIR.observe(repair, repair_cases)
lab07.REPAIR.check(repair)  # stops after 20 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab07 import judge as judges

judges.REPAIR.judge(repair_cases, got_repaired)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 4: which machine, and why
#
# **5 points · hard · 24 minutes**
#
# Clusters of three workers failed. You have the logs of all three, and want to know two things: what
# happened, and at which worker you have to look. Most of what you read comes from workers that are
# fine: they wait, or report what another one did. The logs are real, shortened and renumbered.
#
# | word | what happened |
# |---|---|
# | `missing-peer` | a worker was never started, so its log is empty, and the others wait for it |
# | `taken-port` | another program had this worker's port |
# | `wrong-index` | the worker's index is beyond the end of the list of machines |
# | `not-json` | the worker's TF_CONFIG is not JSON |
# | `alone` | the worker set TF_CONFIG after making its strategy: it trains, alone |
# | `late-strategy` | the worker made its strategy after TensorFlow's first operation |
# | `dead-peer` | the worker died in the middle of training |
# | `mismatched-sizes` | the worker's TF_CONFIG lists a different number of machines than the two others |
#
# **Contract.** `diagnose(logs)` takes a list of three strings, the logs of workers 0, 1 and 2. It
# returns one of the eight words, and the index of the worker that it happened to. Addresses, ports
# and numbers differ each time, and lines that don't matter may be missing.
#
# **Example.** The cell below prints three logs; `diagnose` returns `("wrong-index", 1)` for them.

# %%
for worker, log in enumerate(lab07.make_logs("wrong-index", blamed=1, seed=1)):
    print(f"----- worker {worker}\n{log}")

# %% [markdown]
# Print the others in the same way: `lab07.CAUSES` has their words, and `lab07.list_blamed(word)` the
# workers that each can happen to. `make_logs` writes none when your answer is graded, so `diagnose`
# has to do without it.
#
# <details><summary>Hint 1</summary>
#
# Begin with the five causes whose worker says itself what is wrong, in words that no other log has.
# What do the other two logs look like meanwhile?
#
# </details>
# <details><summary>Hint 2</summary>
#
# Three causes are left. A worker that lost another one names it, and may quote a third one that lost
# it too: in which order? When a group has two sizes, which of them is right, if there are three logs?
# And what is the log of a worker that was never started?
#
# </details>
# <details><summary>Worked idea</summary>
#
# Worker 0 waits for worker 2, and worker 2's log ends with `Could not start gRPC server`. So worker 2
# is there, but another program has its port: `taken-port`, 2. Had you read worker 0's log alone, you
# would have said that worker 2 was never started.
#
# </details>


# %% nbgrader={"grade_id": "cause", "solution": true}
def diagnose(logs):
    ### BEGIN SOLUTION
    # A worker that names its own mistake is found first, because the others only wait for it.
    # Reading worker 0's log alone turns five of the eight causes into a missing peer.
    own_words = {
        "exceeds the maximum id": "wrong-index",
        "JSONDecodeError": "not-json",
        "must be configured at program startup": "late-strategy",
        "Could not start gRPC server": "taken-port",
        "of 1 replicas": "alone",
    }
    for worker, log in enumerate(logs):
        for sign, word in own_words.items():
            if sign in log:
                return word, worker
    together = "\n".join(logs)
    joined = re.search(r"task:(\d)\S* is joining a group with size(\d)", together)
    if joined:  # the right size is 3: if the joining worker has it, worker 0's group hasn't
        task, size = map(int, joined.groups())
        return "mismatched-sizes", task if size != len(logs) else 0
    lost = re.search(r"reset by peer\nAdd.* target \S*task:(\d)", together)
    if lost:
        return "dead-peer", int(lost[1])
    return "missing-peer", [log.strip() for log in logs].index("")
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "cause-test", "points": 5}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 4])
_blamed = {"missing-peer": 3, "taken-port": 3, "not-json": 3, "alone": 3, "late-strategy": 3}
_pairs = [(word, k) for word, count in _blamed.items() for k in range(count)]
_pairs += [("wrong-index", 1), ("wrong-index", 2), ("dead-peer", 1), ("dead-peer", 2)]
_pairs += [("mismatched-sizes", 0), ("mismatched-sizes", 1)]
cause_cases = [(*_pairs[k], int(rng.integers(2**31))) for k in rng.permutation(len(_pairs))]
### END INPUTS
got_causes = lab07.CAUSE.observe(diagnose, cause_cases)
lab07.CAUSE.check(diagnose)  # stops after 20 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab07 import judge as judges

judges.CAUSE.judge(cause_cases, got_causes)
### END HIDDEN TESTS

# %% [markdown]
# ## Before you submit
#
# Restart the kernel and run all cells. Every check cell should report that its worked examples are right.
