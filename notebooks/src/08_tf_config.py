# %% [markdown] shows="Nine ways a start goes wrong, each made for real"
# # TF_CONFIG: who is who in a cluster
#
# You start the same program on two machines, and it hangs. Or it stops with an error from deep inside TensorFlow. Or, worst of all, it runs happily on both, and neither notices the other. Often the cause is one environment variable, TF_CONFIG. Here you'll write it, watch a worker die and come back, and make nine mistakes on purpose, so that you know them when you meet them by accident.
#
# **Time:** 85 minutes · **Prerequisites:** [the training loop by hand](04-custom-training-loop.ipynb) · **Hardware:** two CPU cores
#
# ## Objectives
#
# - Write the TF_CONFIG of every task of a cluster, and check it before anything starts.
# - Tell chief, worker, parameter server and evaluator apart, and say which of them isn't part of the cluster.
# - Describe a cluster to TensorFlow in three ways: TF_CONFIG, plain Python, and the variables of Slurm (a scheduler for compute clusters).
# - Kill a worker, follow its group back to the last checkpoint, and list the processes that a notebook has started.
# - Diagnose nine starts that go wrong, from what TensorFlow prints or from its silence.

# %%
from utils.environment import quiet_tensorflow, set_seeds

with quiet_tensorflow():
    import tensorflow as tf
from utils.devices import use_logical_devices

set_seeds(0)
print(use_logical_devices(2))

# %%
import inspect
import json
import os
import socket
import tempfile
import textwrap
import threading
from pathlib import Path

import psutil

# %% [markdown]
# ## Two TF_CONFIGs, and no cluster
#
# Here are two machines, and what the variable TF_CONFIG holds on each of them. Someone wrote it for node-a, where it's correct, and copied it to node-b. **Change one character so that the cluster forms.** You don't have to know the rules yet. At every key you press, the picture shows what the two would do, and the lines below it say what's missing.

# %%
from distlab.explorables import edit_cluster

edit_cluster()

# %% [markdown]
# You'll see why each of these lines is there, and at the end you'll repair a pair with four mistakes.
#
# ## Two kinds of cluster
#
# A *cluster* is a set of processes that know each other's addresses. Each process is a *task*, and what it's there for is its *job*. TensorFlow knows four jobs: chief, worker, ps (for parameter server) and evaluator. The picture shows the two kinds of cluster that are made of them. In this lesson we start the left one; [lesson 11](11-parameter-server.ipynb) runs the right one.

# %%
from distlab import figures
from distlab.lessons.cluster_pictures import draw_jobs

figures.show(draw_jobs())
Path("runs/lesson08").mkdir(parents=True, exist_ok=True)  # for the next cell's file

# %% [markdown]
# ## One program, two machines
#
# Here is a whole program for a synchronous cluster, in plain TensorFlow. It learns the line y = 3 x + 2 from 64 points, and each worker takes its half of every batch. Nothing in the code says how many workers there are: the strategy finds out. The first line of the cell writes the program to a file in `runs/`, next to this notebook.

# %% tags=["nbval-ignore-output"]
# %%writefile runs/lesson08/train.py
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()  # TF_CONFIG is set; before any operation
with strategy.scope():
    slope, offset = tf.Variable(0.0), tf.Variable(0.0)


def replica_step(x):  # this worker's half of a batch of 8
    with tf.GradientTape() as tape:
        losses = (slope * x + offset - (3 * x + 2)) ** 2
        loss = tf.nn.compute_average_loss(losses, global_batch_size=8)
    gradients = tape.gradient(loss, [slope, offset])
    totals = tf.distribute.get_replica_context().all_reduce("SUM", gradients)
    for variable, total in zip([slope, offset], totals):
        variable.assign_sub(0.1 * total)


step = tf.function(lambda x: strategy.run(replica_step, args=(x,)))
points = tf.data.Dataset.from_tensor_slices(tf.linspace(-1.0, 1.0, 64))
points = points.shuffle(64, seed=0)  # no seed: two orders, so points get lost or come twice
for x in strategy.experimental_distribute_dataset(points.batch(8).repeat(20)):
    step(x)
me = strategy.cluster_resolver
print(
    f"{me.task_type} {me.task_id}: {strategy.num_replicas_in_sync} replicas in sync, "
    f"y = {slope.numpy():.2f} x + {offset.numpy():.2f}"
)

# %% [markdown]
# A process learns about the others from one environment variable, `TF_CONFIG`. It's JSON with two parts. `cluster` lists the addresses of all tasks, by job; it is the same in every task. `task` gives this task's own job and its index in that job's list, counted from 0. On two machines you would type:
#
#     node-a$ TF_CONFIG='{"cluster": {"worker": ["node-a:12345", "node-b:12345"]},
#               "task": {"type": "worker", "index": 0}}' python train.py
#     node-b$ TF_CONFIG='{"cluster": {"worker": ["node-a:12345", "node-b:12345"]},
#               "task": {"type": "worker", "index": 1}}' python train.py
#
# We do the same on this machine. `run_tasks` starts the program twice, each time with one of the two TF_CONFIGs, and returns what they print.
#
# Its last line says how many replicas there are, and that's worth an assertion in your own program.
#
# **Your turn.** You start a program on three machines with four GPUs each. Which number should `num_replicas_in_sync` be in each of them?

# %%
expected = ...

# %%
from distlab.lessons.typed_cluster import run_tasks
from utils.tf_config import pick_free_ports
from distlab.turns import lesson08 as turns

expected = turns.EXPECTED.take(expected)
print(f"assert strategy.num_replicas_in_sync == {expected}  # on these three machines\n")
a, b = pick_free_ports(2)  # on machines of your own: any free port, such as 12345
both = {"worker": [f"localhost:{a}", f"localhost:{b}"]}  # the cluster: the same text for both
texts = [json.dumps({"cluster": both, "task": {"type": "worker", "index": i}}) for i in (0, 1)]
printed = run_tasks("runs/lesson08/train.py", texts)
print(*(lines[-1] for lines in printed), sep="\n")
assert [lines[-1][8:] for lines in printed] == 2 * [": 2 replicas in sync, y = 3.00 x + 2.00"]

# %% [markdown]
# Two separate processes count two replicas and learn one line, because an environment variable told each of them about the other.
#
# One thing in the program is easy to overlook: `seed=0`. Each worker shuffles all 64 points and keeps its half. With the same seed both cut the same order, so the two halves fit together. Without one they shuffle differently. We counted on two workers: On average a quarter, 16 of 64 numbers, come twice, and another quarter never. [Lesson 13](13-distributed-input.ipynb) shows how to count that in your own program.
#
# **Your turn.** Every machine should run the same script, so the script has to find out which task it is. It has the list of workers, `["gpu9:12345", "gpu10:12345", …]`, and the name of its own machine, such as `"gpu10"`. What is the index?


# %%
def find_index(workers, host):
    return ...


# %%
find_index = turns.INDEX.take(find_index)
workers = ["gpu9:12345", "gpu10:12345", "gpu1:12345"]
print({host: find_index(workers, host) for host in ("gpu9", "gpu10", "gpu1")})

# %% [markdown]
# (`socket.gethostname()` is the machine's own name. Some machines add a domain to it, as in `gpu9.example.org`. Write the names in the list the way they do.)
#
# ## The same through utils
#
# Most mistakes come from typing this JSON by hand. `build_cluster` and `build_tf_configs` write them for you, and refuse what can't work. They also write it for the larger kind of cluster. The cell prints one TF_CONFIG of each kind.

# %%
from utils.tf_config import build_cluster, build_tf_configs

hosts = ["node-a", "node-b"]
addresses = {"worker": [f"{host}:12345" for host in hosts]}
by_hand = [
    json.dumps({"cluster": addresses, "task": {"type": "worker", "index": index}})
    for index in range(2)
]
built = build_tf_configs(build_cluster(workers=2, hosts=hosts))
assert list(built.values()) == by_hand
large = build_tf_configs(build_cluster(workers=2, ps=1, chief=True, hosts=hosts), evaluator=True)
print(built["worker:1"], large["ps:0"], sep="\n")

# %% [markdown]
# What does each task do? In the small cluster none is called chief. `describe_role` says which one has the chief's duties: keeping the checkpoints and writing summaries for TensorBoard.

# %%
from utils.tf_config import describe_role, parse_tf_config

for name, text in [*built.items(), ("", ""), *large.items()]:
    print(f"{name:<12}{describe_role(parse_tf_config(text))}" if text else "")

# %% [markdown]
# If no chief is listed, worker 0 has its duties. (Saving has a twist: in a synchronous cluster all workers call save, and only the chief's copy is kept. [Lesson 09](09-multi-worker-mirrored.ipynb) shows why.)
#
# Two rules in this list are easily forgotten. With parameter servers the chief directs and doesn't train. And an evaluator is not a member of the training cluster. Here it gets that cluster's addresses and its own task. TensorFlow's tutorial gives it a cluster with nothing but itself, `{"evaluator": ["host:port"]}`. The linter that comes next accepts both.
#
# ## Check it before anything starts
#
# A wrong start can cost minutes of waiting. A *linter*, a program that checks a text without running it, answers at once: it names the mistake and what to write instead. `lint` checks one configuration. `lint_together` checks all of them, because a single one can't show that two tasks contradict each other. Below, they look at three mistakes: a job called "workers", an index of 2, and the same text on both machines.

# %%
from utils.tf_config import lint, lint_together

for text in (by_hand[0].replace('"worker": [', '"workers": ['), by_hand[1].replace("1}}", "2}}")):
    print(*[finding for finding in lint(text) if finding.severity == "error"], sep="\n")
same = {"node-a": by_hand[0], "node-b": by_hand[0]}  # the same text copied to both
print(*[finding for source, finding in lint_together(same) if source == "together"], sep="\n")
assert all(finding.severity == "note" for text in by_hand for finding in lint(text))

# %% [markdown]
# In a shell, `distlab tf-config build --workers 2 --host node-a --host node-b` prints these TF_CONFIGs, and `distlab tf-config lint` checks the TF_CONFIG that is set there.
#
# ## Resolvers: who tells TensorFlow
#
# A strategy doesn't read TF_CONFIG itself. It asks a *resolver*, an object that finds out the cluster, the task type (the job) and the task id (the index). There are several, one for each place where these may be written. Three of them run here: they read TF_CONFIG, your own Python code, or the variables that the scheduler Slurm sets. The cell asks all three, as worker 1.

# %%
from utils.tf_config import view_as_simple, view_as_slurm

resolvers = tf.distribute.cluster_resolver
os.environ["TF_CONFIG"] = by_hand[1]
from_variable = resolvers.TFConfigClusterResolver()
simple = view_as_simple(parse_tf_config(by_hand[1]))
specification = tf.train.ClusterSpec(simple.pop("cluster_spec"))
from_python = resolvers.SimpleClusterResolver(specification, **simple)
for resolver in (from_variable, from_python):
    print(resolver.task_type, resolver.task_id, resolver.cluster_spec().as_dict())
del os.environ["TF_CONFIG"]
print("and without the variable:", from_variable.cluster_spec().as_dict())
slurm = view_as_slurm(parse_tf_config(by_hand[1]))  # what srun sets in the second task
print(slurm)
os.environ.update(slurm)
from_slurm = resolvers.SlurmClusterResolver(
    port_base=12345, gpus_per_node=1, gpus_per_task=1, auto_set_gpu=False
)
print(from_slurm.cluster_spec().as_dict(), from_slurm.get_task_info())
assert from_slurm.cluster_spec().as_dict() == from_python.cluster_spec().as_dict() == addresses
for name in slurm:
    del os.environ[name]

# %% [markdown]
# All three give the same cluster. The third printed line shows that `TFConfigClusterResolver` reads the variable again each time it's asked: once TF_CONFIG is deleted, its cluster is empty.
#
# Slurm's resolver takes the number of tasks from Slurm and gives each of them a GPU. Without GPUs it fails, so on CPUs we pretend there's one per task. It also sorts node names as text, so n10 comes before n2. Then worker 1's address may be the machine on which another task runs, and the start hangs. Pad them: n02.
#
# Two others need something we don't have here, a Kubernetes cluster and a TPU. We can at least print their arguments. The table after the cell lists all of TensorFlow's resolvers.

# %%
for kind in (resolvers.KubernetesClusterResolver, resolvers.TPUClusterResolver):
    arguments = inspect.signature(kind.__init__).parameters
    print(f"{kind.__name__}: {', '.join(name for name in arguments if name != 'self')}")

# %% [markdown]
# | resolver | reads | runs here |
# |---|---|---|
# | `TFConfigClusterResolver` | the variable TF_CONFIG | yes; the default of MultiWorkerMirroredStrategy |
# | `SimpleClusterResolver` | what you pass to it | yes |
# | `SlurmClusterResolver` | `SLURM_STEP_NODELIST`, `SLURM_PROCID`, … | yes, with these variables set |
# | `KubernetesClusterResolver` | the API server: running pods by label, each at the port `tf_server_port` | no: needs a Kubernetes cluster (and it doesn't know which pod it is in) |
# | `TPUClusterResolver` | the name of a TPU, or the metadata of its machine | no: needs a TPU |
# | `GCEClusterResolver` | an instance group on Google Compute Engine | no: needs Google Cloud |
# | `UnionResolver` | other resolvers, merged into one cluster | if those do |
#
# ## Watch a worker die
#
# From here on `LocalCluster` does the typing. It starts real processes on this machine, each with its TF_CONFIG, and calls a function in each of them. (The first line of the cell makes these tasks print all of TensorFlow's log, because we'll want to read it later.)
#
# The function is a training that takes a while: logistic regression on Fashion-MNIST, half of each batch on each worker. Worker 0 saves the weights at every twentieth step, and a restart continues from there. Lessons [09](09-multi-worker-mirrored.ipynb) and [10](10-fault-tolerance.ipynb) show how to write such a function. This one takes about ten steps per second, so that you can follow it.
#
# `cockpit(job)` draws a row for each task, on one axis of time. Blue is a worker that computes its gradient, green the all-reduce in which the gradients are added up, gray a worker that waits for the other. Flags are checkpoints. With `restarts=20` the cluster starts the whole group again when a task dies, up to twenty times.
#
# The job runs for a quarter of an hour, or until you stop it, so take your time. Things to try:
#
# - **Slow down** worker 1. Who waits for whom?
# - **Pause** worker 0, then resume it.
# - **Kill** worker 1, and watch what worker 0 does, where both begin again, and what becomes of the steps in between.
# - Switch on **Chaos** and lean back.
#
# The cell after it stops this job. It starts another one and kills worker 1 for you, at step 35.

# %% tags=["nbval-ignore-output"]
from distlab.explorables import cockpit
from distlab.lessons.watched_training import train_slowly
from utils.cluster import LocalCluster
from utils.measure import Stopwatch

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "0"  # for the tasks; this process is quiet already
with Stopwatch() as warm_watch:
    cluster = LocalCluster(workers=2)
    print("tasks are", cluster.launcher.description)
folder = tempfile.TemporaryDirectory()
played = cluster.start(train_slowly, folder.name, restarts=20)
next(event for event in played.events() if event.get("step", 0) >= 12)
cockpit(played)

# %% tags=["nbval-ignore-output"]
played.stop()
job = cluster.start(train_slowly, tempfile.mkdtemp(dir=folder.name), 80, restarts=1)
view = cockpit(job)
next(event for event in job.events() if event.get("step", 0) >= 35)
job.kill("worker", 1)
resumed = job.wait(60)
print("attempts:", job.attempt, "· continued after step", resumed[0])
figures.show(view.picture())
assert job.attempt == 2 and resumed[0] == resumed[1] and resumed[0] % 20 == 0

# %% [markdown]
# Read the picture from left to right. At ✕ worker 1 is killed. Worker 0 is fine, and yet it stops within the same step: its all-reduce needs the gradient of worker 1. So both are ended and started again, and both continue from the last checkpoint, the larger, outlined flag. The hatched stretch is training that was done for nothing, and is done again after ↻. A synchronous group is as slow as its slowest member, and when one dies all of them stop.
#
# The quick end and the restart are `LocalCluster`'s work: it watches the processes. TensorFlow restarts nobody, and it needs longer to notice. We started two workers in two shells and killed one. After worker 1 was killed, worker 0 raised `UnavailableError` ("stopped sending heartbeats") 15 s later. After worker 0 was killed, worker 1 failed 5.5 s later ("Connection reset"). On your own machines something has to restart the programs: a scheduler, or `distlab run --max-restarts`.
#
# If a notebook's kernel crashes, its cluster ends with it. If some process does survive, `distlab processes list` in a shell finds it, and `distlab processes stop` ends those that have lost their notebook. The next cell asks for the same list from Python. Right now it shows what this lesson keeps running: a process that waits to start the next tasks.

# %% tags=["nbval-ignore-output"]
from utils.processes.registry import find_clusters

mine = [found.to_record() for found in find_clusters() if found.mark.owner == os.getpid()]
for process in mine[0]["processes"]:
    print(process["process"], process["name"], process["ports"])
assert len(mine) == 1 and mine[0]["owner_lives"]

# %% [markdown]
# ## The mistake, nine times
#
# Each of the nine starts has two workers that take one step, and one thing that is wrong: the text of TF_CONFIG, the order of the lines in the program, or the world around it. In `start_with`, the function `change` gets a task's correct configuration and returns a wrong one, as someone might have typed it. `examine` waits for the job, and prints what `diagnose_job` finds in the tasks' logs and errors: the line that shows the mistake, its cause and the fix.


# %%
def take_step():
    """Make the strategy and add one 1.0 from every replica."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    step = tf.function(lambda: strategy.reduce("SUM", strategy.run(lambda: 1.0), axis=None))
    print(f"num_replicas_in_sync: {strategy.num_replicas_in_sync}")
    return float(step())


def start_with(change):
    """Run in every task: change TF_CONFIG, then start as usual."""
    os.environ["TF_CONFIG"] = change(json.loads(os.environ["TF_CONFIG"]))
    return take_step()


def set_index(config, index):
    return json.dumps(config | {"task": {"type": "worker", "index": index}})


# %%
from distlab.lessons.failing_starts import diagnose_job

diagnosed = {}


def examine(mistake, job, change=json.dumps, seconds=30):
    """Print the line of the log that shows it, its cause and the fix; keep the diagnosis."""
    found = diagnosed[mistake] = diagnose_job(job, change, seconds)
    print(f"{mistake} ({found.task})")
    for name, text in (("log", found.evidence), ("cause", found.cause), ("fix", found.cure)):
        print(textwrap.fill(f"  {name + ':':<7}{text}", 96, subsequent_indent=" " * 9))
    print()


# %% [markdown]
# Some take a while to show, so we start them now and read their logs at the end. In one, worker 1 never gets as far as connecting, and in another it's worker 0. In the third, worker 0's port is already in use, by this notebook.


# %%
def come_late(index):
    """The worker `index` first waits for something that never comes."""
    if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == index:
        threading.Event().wait()
    return take_step()


taken = socket.create_server(("127.0.0.1", 0))
taken_address = f"127.0.0.1:{taken.getsockname()[1]}"


def use_taken_port(config):
    config["cluster"]["worker"][0] = taken_address
    return json.dumps(config)


waiting = {"missing peer": cluster.start(come_late, 1), "nobody first": cluster.start(come_late, 0)}
waiting["taken port"] = cluster.start(start_with, use_taken_port)

# %% [markdown]
# ### In the text
#
# Four typos: an index that counts from 1, the same index in both tasks, a dict printed by Python instead of JSON, and a job name with an extra s. The linter would have found all four.

# %% tags=["nbval-ignore-output"]
in_the_text = {
    "index from 1": lambda config: set_index(config, config["task"]["index"] + 1),
    "same index twice": lambda config: set_index(config, 0),
    "not JSON": str,
    "misspelled job": lambda config: json.dumps(config).replace('"worker"', '"workers"'),
}
for mistake, change in in_the_text.items():
    examine(mistake, cluster.start(start_with, change), change)
names = [found.name for found in diagnosed.values()]
assert names == ["wrong-index", "taken-port", "not-json", "misspelled-job"]

# %% [markdown]
# Look at the second. Two processes on one machine that both claim index 0 want the same port, so it looks as if another program had taken it. On two machines each gets its port, and the result is stranger. We tried it in two network namespaces. The *rightful* worker 0 stopped: `unexpectedly tried to connect with a different incarnation. It has likely restarted`. The impostor waited without a word, and we ended it after eight minutes. So the healthy machine fails and the wrong one looks fine: when you see that line, look for a second task with the same index.
#
# ### In the program
#
# TensorFlow must know the cluster before it starts up, and its first operation starts it up. So a single operation before the strategy is already too late:


# %% tags=["nbval-ignore-output"]
def compute_first():
    tf.reduce_sum(tf.ones([2]))  # anything: a tensor, a variable, a dataset's first element
    return take_step()


examine("strategy after an op", cluster.start(compute_first))
assert diagnosed["strategy after an op"].name == "late-strategy"

# %% [markdown]
# **Predict.** Now TF_CONFIG is correct, but it's set after the strategy is made. Do the workers raise an error, wait for each other, or do something else?

# %%
from distlab.explorables import guess_word

my_word = guess_word("The workers", "raise an error", "wait for each other", "do something else")
my_word


# %%
from distlab.exercises.predict import show_guess


def configure_last():
    configuration = os.environ.pop("TF_CONFIG")
    total = take_step()
    os.environ["TF_CONFIG"] = configuration
    return total


job = cluster.start(configure_last)
totals = job.wait(60)
show_guess(my_word, "both train alone, without a word" if totals == [1.0, 1.0] else "a surprise")
print("sum over all replicas, in each worker:", totals, "\n")
examine("TF_CONFIG after the strategy", job)
assert diagnosed["TF_CONFIG after the strategy"].name == "late-tf-config"
assert job.logs("worker", 0)[-1] == "num_replicas_in_sync: 1"

# %% [markdown]
# This is the worst of the nine, because nothing fails. Two workers train two models that never exchange a gradient, and in the end you keep one of them. In your own job you might notice nothing, except that the second machine doesn't seem to help. One number gives it away: `num_replicas_in_sync: 1`. Print it, and compare it with what you expect.
#
# ### In the world
#
# Now the three that we started before the others, a missing worker 1, a missing worker 0 and a taken port. The first is still waiting for worker 1. Worker 0 says so (the line below), and names the missing task in the next lines. It says it *once*, when it starts to wait. In five more minutes we saw nothing new, so scroll up. In the second, worker 0 is missing, and worker 1 says nothing at all after "Started server". So read worker 0's log first, and if there is none, you have found the missing task.
#
# You see that line by default. Our `quiet_tensorflow` hides it, and so does any script that sets `TF_CPP_MIN_LOG_LEVEL` above 0. When a start hangs, unset that variable first. And don't be surprised if you can't stop the program: a worker that waits for another ignores Ctrl-C, and SIGTERM as well. `kill -9` with its process id ends it. (So does closing its terminal, which sends SIGHUP.)

# %% tags=["nbval-ignore-output"]
examine("missing peer", waiting["missing peer"], seconds=3)
alone = waiting["nobody first"]  # worker 1 waits, and worker 0 isn't there
log = alone.logs("worker", 1)
print("nobody first (worker:0)\n  the log of worker:1 ends:", log[-1][-60:], "\n")
assert not any("Waiting for" in line for line in log)
alone.stop()
examine("taken port", waiting["taken port"], use_taken_port)
taken.close()
assert diagnosed["missing peer"].name == "missing-peer"
assert diagnosed["missing peer"].task == "worker:1"
assert diagnosed["taken port"].name == "taken-port"
assert len(diagnosed) == 8

# %% [markdown]
# The fix for the first six: let `build_tf_configs` write the texts, lint them together, set TF_CONFIG before importing TensorFlow, make the strategy first, and check the number of replicas. For the last three, start the missing task or free the port. The same function with nothing wrong:

# %%
assert cluster.run(take_step, echo=False, timeout=60) == [2.0, 2.0]
print("sum over all replicas, in each worker: 2.0")

# %% [markdown]
# ## Back to the two TF_CONFIGs
#
# This pair has four mistakes, two in each. Find them before you look at the lines below the picture. Then repair them one by one, and watch the messages change. A mistake may show only when another is gone.

# %%
edit_cluster(
    """{"cluster": {"workers": ["node-a:12345", "node-b:12345"]},
 "task": {"type": "worker", "index": 1}}""",
    """{"cluster": {"worker": ["node-a:12345", "localhost:12345"]},
 "task": {"type": "worker", "index": 2}}""",
)

# %% [markdown]
# The index on node-a was the hidden one. Once "workers" is repaired, its TF_CONFIG alone is correct, and only next to the other does it turn out that nobody is worker 0. That's why `lint_together` reads all of them. (One thing the linter can't see: whether a TF_CONFIG is on the machine that it names. The picture knows both machines, and says so.)
#
# ## Symptoms, on one page
#
# When a start goes wrong, begin at the symptom. The times are from our runs of two workers in two shells.
#
# | what you see | whose log | the line | cause |
# |---|---|---|---|
# | hangs at the start | worker 0 | `Waiting for 1/2 tasks to connect`, once | a task hasn't started, or can't reach worker 0 |
# | hangs at the start | any other worker | nothing after `Started server` | worker 0 hasn't started, or can't be reached |
# | worker 0 stops, another worker hangs | worker 0 | `tried to connect with a different incarnation` | two tasks have index 0 |
# | stops at once | the task itself | `Failed to add port to server` | another program has the port, or two tasks have one index |
# | stops at once | all | `Collective ops must be configured at program startup` | an operation before the strategy |
# | stops 10 to 15 s after a death | worker 0 | `stopped sending heartbeats` | another worker has died |
# | stops within 6 s of a death | the others | `Connection reset` | worker 0 has died |
# | hangs between two steps | all | nothing | one worker missed a collective call ([lesson 09](09-multi-worker-mirrored.ipynb)) |
# | runs, and no faster | all | `num_replicas_in_sync: 1` | TF_CONFIG is empty, or was set too late |
#
# If every task runs and the start still hangs, suspect a firewall, or a host name that another machine resolves differently. While worker 0 waits, `nc -vz node-a 12345` on the other machine tells whether its port can be reached. `distlab diagnose` reads such logs for you.
#
# ## What it costs
#
# A task is a whole Python process with a whole TensorFlow in it. Importing TensorFlow takes seconds, so on Linux our cluster does it once, in a *warm process*, and forks the tasks from that. A forked task shares the memory that it doesn't write to. The cell prints the seconds, and how much memory belongs to each worker alone.


# %% tags=["nbval-ignore-output"]
from utils.measure import format_bytes


def weigh():
    """Return this task's memory in bytes: resident, and not shared with other processes."""
    tf.distribute.MultiWorkerMirroredStrategy()  # connects
    memory = psutil.Process().memory_full_info()
    return memory.rss, memory.uss


with Stopwatch() as start_watch:
    rows = cluster.run(weigh, echo=False, timeout=60)
print(f"warm process, once:     {warm_watch.seconds:5.1f} s")
print(f"two workers, connected: {start_watch.seconds:5.1f} s")
for rank, (resident, own) in enumerate(rows):
    print(f"worker {rank}: {format_bytes(resident)}, of which its own {format_bytes(own)}")
cluster.close()
folder.cleanup()
assert psutil.Process().children(recursive=True) == []  # nothing is left

# %% [markdown]
# **Recap**
#
# - **Write and check:** `cluster` is the same for all, `task` differs; a linter that reads them together finds contradictions.
# - **Roles:** worker 0 has the chief's duties where there's no chief; the evaluator isn't part of the cluster.
# - **Resolvers:** three ways to describe it gave the same cluster.
# - **Restart:** a killed worker sent the whole group back to the last checkpoint; TensorFlow notices a death, but restarts nobody.
# - **Diagnose:** seven mistakes show in the log or as an error, one by what the log lacks, and one only as `num_replicas_in_sync: 1`.
#
# ## Cheat sheet
#
# ```python
# import json, os, sys  # start it twice: python card.py 0, and in another shell python card.py 1
# os.environ["TF_CONFIG"] = json.dumps({  # on two machines node-a:12345 and node-b:12345
#     "cluster": {"worker": ["localhost:12345", "localhost:12346"]},  # the same in every task
#     "task": {"type": "worker", "index": int(sys.argv[1])}})
# import tensorflow as tf  # after TF_CONFIG
# strategy = tf.distribute.MultiWorkerMirroredStrategy()  # before any other operation
# assert strategy.num_replicas_in_sync == 2  # 1: it trains alone
# me, jobs = strategy.cluster_resolver, strategy.cluster_resolver.cluster_spec().jobs
# is_chief = not me.task_id and ("chief" not in jobs or me.task_type == "chief")  # its save is kept
# ```
#
# A whole program that reads TF_CONFIG, with the lines to type on two machines: [multi_worker_custom_loop.py](../examples/multi_worker_custom_loop.py). Run it only on a network you trust: TensorFlow listens on all of a machine's network interfaces, unencrypted and without a password.
#
# ## On a real GPU
#
# `make gpu-check ARGS=two-workers` starts two workers on this machine, which divide its GPUs between them.
# Look at the last column: the largest difference from the weights of one process on a CPU.
# The second column says which GPUs each worker saw. No GPU should be in both.
#
# ## Further reading
#
# - TensorFlow's guide, [Distributed training: setting up TF_CONFIG](https://www.tensorflow.org/guide/distributed_training#setting_up_the_tf_config_environment_variable)
# - TensorFlow's reference, [tf.distribute.cluster_resolver](https://www.tensorflow.org/api_docs/python/tf/distribute/cluster_resolver), with each resolver
# - TensorFlow's tutorial, [Multi-worker training with Keras](https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras), on the roles of chief and workers
#
# ## The lab
#
# In [lab 07, cluster doctor](../labs/lab07-cluster-doctor.ipynb), you write and fix TF_CONFIGs, and find in the logs of three workers which machine broke a cluster, and how. Lesson 09 trains on such a cluster, and lesson 10 makes its runs survive a crash.
