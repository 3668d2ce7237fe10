# %% [markdown] shows="Write and repair TF_CONFIGs; read the logs of eight failed clusters"
# # Lab 07 · Cluster doctor
#
# A cluster that won't start is quiet or cryptic, and rarely both helpful and polite. Here you write TF_CONFIG for every task of a cluster, repair a set of them that disagree, and tell from a log why a cluster failed.
#
# **Time:** 45 minutes · **Points:** 10 · **Hardware:** any computer; nothing here starts TensorFlow
#
# Lesson 08 has the ideas. Elsewhere `distlab tf-config lint` and `utils.tf_config` do this work for you. Here you do it yourself, with Python's `json`: calling `utils.tf_config` in an answer isn't allowed, and the check notices it. When you hand in, other cases are drawn from another `SEED`. The lines between `BEGIN INPUTS` and `END INPUTS` draw them; leave those as they are.

# %%
import json

import numpy as np

from distlab.labs.lab07 import exercise as lab07

# %%
SEED = 2026

# %% [markdown]
# ## Exercise 1: one worker's TF_CONFIG
#
# **2 points · easy · 8 minutes**
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
    task = {"type": "worker", "index": index}
    return json.dumps({"cluster": {"worker": list(hosts)}, "task": task})
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "worker-test", "points": 2}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 1])
worker_cases = []
for _workers in (2, 5):
    _hosts = [f"10.0.{rng.integers(256)}.{rng.integers(256)}:2222" for _ in range(_workers)]
    worker_cases.append((_hosts, int(rng.integers(1, _workers))))
### END INPUTS
got_configs = lab07.WORKER.observe(write_config, worker_cases)
lab07.WORKER.check(write_config)
### BEGIN HIDDEN TESTS
from distlab.labs.lab07 import judge as judges

judges.WORKER.judge(worker_cases, got_configs)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 2: four roles
#
# **2 points · medium · 10 minutes**
#
# **Contract.** `write_role(machines, job, index)` takes a dictionary from job to addresses, with the keys "chief", "worker", "ps" and "evaluator", and one task: its job and its index within that job. It returns that task's TF_CONFIG as text. The cluster holds the coordinator (job "chief"), the workers and the parameter servers, and it's the same for every task. The evaluator stands outside: no cluster lists it, not even the one in its own TF_CONFIG. Its *task* says what it is. (TensorFlow also accepts an evaluator with a cluster of its own. In this exercise it gets everyone's.)
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
lab07.ROLE.check(write_role)
### BEGIN HIDDEN TESTS
from distlab.labs.lab07 import judge as judges

judges.ROLE.judge(role_cases, got_roles)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 3: repair a cluster
#
# **3 points · medium · 12 minutes**
#
# The TF_CONFIGs of a cluster were copied from machine to machine and edited by hand. Now they disagree, so the cluster waits forever or stops.
#
# **Contract.** `repair(configs)` takes a list of TF_CONFIG texts, one for each worker, in the order of the workers. Worker 0's text is right, and so is its list of machines. It returns the list of repaired texts, in the same order: all with the same machines in the same order, and each with its own index.
#
# **Example.** The check cell breaks three of four configurations: one has an index that's already used, one has a list that's a machine short, one has the machines in another order.
#
# <details><summary>Hint 1</summary>
#
# `json.loads` reads a text. What can you take over from worker 0's as it is?
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
    cluster = json.loads(configs[0])["cluster"]
    tasks = [{"type": "worker", "index": index} for index in range(len(configs))]
    return [json.dumps({"cluster": cluster, "task": task}) for task in tasks]
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "repair-test", "points": 3}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 3])
repair_cases = []
for _workers in (4, 6):
    _hosts = [f"10.1.{rng.integers(256)}.{rng.integers(256)}:2222" for _ in range(_workers)]
    _hosts.sort(reverse=True)
    repair_cases.append((_hosts, *(int(n) for n in 1 + rng.permutation(_workers - 1)[:3])))
### END INPUTS
got_repaired = lab07.REPAIR.observe(repair, repair_cases)
lab07.REPAIR.check(repair)
### BEGIN HIDDEN TESTS
from distlab.labs.lab07 import judge as judges

judges.REPAIR.judge(repair_cases, got_repaired)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 4: eight logs
#
# **3 points · hard · 15 minutes**
#
# Eight clusters failed for real. The last two causes are new; the other six you met in lesson 08. Print their logs and read them:
#
# | word | what had happened |
# |---|---|
# | `missing-peer` | a worker was never started, and the others wait for it |
# | `taken-port` | another program had this worker's port |
# | `wrong-index` | the index is beyond the end of the list of machines |
# | `not-json` | TF_CONFIG is not JSON |
# | `alone` | TF_CONFIG was set after the strategy was made: it trains, alone |
# | `late-strategy` | the strategy was made after TensorFlow's first operation |
# | `dead-peer` | a worker died in the middle of training |
# | `mismatched-sizes` | two workers have clusters of different sizes |
#
# **Contract.** `name_cause(log)` takes a log as one string and returns one of the eight words. Addresses, ports and numbers differ each time, and lines that don't matter may be missing.
#
# **Example.** The cell below prints one log; its cause is `wrong-index`.

# %%
print(lab07.make_log("wrong-index", seed=1))

# %% [markdown]
# Print the others in the same way: `lab07.CAUSES` has their words.
#
# <details><summary>Hint 1</summary>
#
# For each of them, find a few words that appear in no other log. The last line isn't always enough.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Two of the eight contain no error at all. One names the task it's waiting for. In the other, which number gives it away?
#
# </details>
# <details><summary>Worked idea</summary>
#
# `exceeds the maximum id` appears only in the log of the wrong index. So `if "exceeds the maximum id" in log: return "wrong-index"`, and seven more like it.
#
# </details>


# %% nbgrader={"grade_id": "cause", "solution": true}
def name_cause(log):
    ### BEGIN SOLUTION
    signs = {
        "exceeds the maximum id": "wrong-index",
        "JSONDecodeError": "not-json",
        "must be configured at program startup": "late-strategy",
        "Could not start gRPC server": "taken-port",
        "but that group has size": "mismatched-sizes",
        "stopped sending heartbeats": "dead-peer",
        "of 1 replicas": "alone",
        "tasks to connect": "missing-peer",
    }
    return next(word for sign, word in signs.items() if sign in log)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "cause-test", "points": 3}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 4])
_words = ["missing-peer", "taken-port", "wrong-index", "not-json", "alone", "late-strategy"]
_words += ["dead-peer", "mismatched-sizes"]
cause_cases = [(_words[k], int(rng.integers(2**31))) for k in rng.integers(0, 8, 8).tolist()]
cause_cases += [(_words[k], int(rng.integers(2**31))) for k in rng.permutation(8).tolist()]
### END INPUTS
got_causes = lab07.CAUSE.observe(name_cause, cause_cases)
lab07.CAUSE.check(name_cause)
### BEGIN HIDDEN TESTS
from distlab.labs.lab07 import judge as judges

judges.CAUSE.judge(cause_cases, got_causes)
### END HIDDEN TESTS

# %% [markdown]
# ## Before you hand in
#
# Restart the kernel and run all cells. Every check cell should report that its worked examples are right.
