"""Every mistake of starting a cluster, made with real processes, and what is said about it.

`cluster_mistakes.py` makes them all at once (about 20 s); each test reads the real log.
"""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from utils.tf_config import diagnose, diagnose_cluster, is_right, lint, lint_together
from utils.tf_config.symptoms import (
    COLLATERAL,
    CONFIGURATION,
    EXCEPTIONS,
    OLD_PROGRAMS,
)
from utils.tf_config.symptoms import (
    PROGRAM as STOPS,
)

PROGRAM = Path(__file__).parents[1] / "cluster_mistakes.py"
LIMIT_SECONDS = 500  # more than any of them takes
pytestmark = pytest.mark.cold_start  # what TensorFlow writes as it starts is read here

# mistake | what diagnose calls it (=: the same) | task that it names | words of cause | of the cure
ROWS = """
missing-peer | = | worker:1 | waits for worker:1 at 127.0.0.1: | start that
missing-leader | missing-peer | worker:0 | waits for worker:0 | start that task
missing-server | missing-peer | chief:0 | coordinator waits | start every listed
unknown-host | missing-peer | worker:0 | at worker-0.invalid:2222 | its address
taken-port | = | worker:0 | is taken | its own free port
duplicate-index | taken-port | worker:0 | another task with the same index | own free
duplicate-index-elsewhere | duplicate-index | worker:1 | two processes say | of its own
wrong-index | = | worker:2 | index 2 is out of range | count from 0
late-tf-config | = | worker:0 | trains alone | before the strategy
late-strategy | = | worker:0 | after TensorFlow had run | first thing
second-strategy | = | local:0 | has 4 replicas, the first had 2 | ReductionToOneDevice
renewed-server | = | worker:1 | made a second strategy | one strategy per
dead-peer | = | worker:1 | has stopped answering | look in its own log for the first error
dead-parameter-server | = | ps:0 | its variables with it | last checkpoint
mismatched-sizes | = | worker:1 | the tasks disagree about the cluster | the same cluster
mismatched-shapes | = | worker:1 | where another task has | the same model
ps-strategy-without-ps | wrong-strategy | chief:0 | without ps | add ps addresses
multi-worker-as-ps | wrong-strategy | ps:0 | made in a ps task | tf.distribute.Server
keras-fit-multi-worker | = | worker:0 | Keras 3's fit | --keras legacy
keras-fit-parameter-server | = | chief:0 | used directly | create_per_worker_dataset
python-repr | not-json | worker:0 | not JSON | json.dumps
misspelled-job | = | workers:0 | 'workers' | called chief, worker, ps
type-not-in-cluster | = | chief:0 | no task of type chief | list its
no-task | = | unknown | not which task | "task": {"type"
own-parsing | not-json | worker:0 | TF_CONFIG is not JSON | json.dumps
raised | exception | worker:1 | it raised KeyError: 'label_column' | have lost this one
other-shape | wrong-shape | worker:0 | shapes that don't fit | dataset.element_spec
graph-error | exception | worker:0 | InvalidArgumentError: indices = 7 is not | mistakes.py, line
missing-file | = | worker:0 | /nowhere/train.tfrecord isn't on | same folder
not-finite | = | worker:0 | no longer a finite number | learning rate
disk-full | = | worker:0 | the disk is full | df -h
corrupt-file | = | worker:0 | damaged at byte 0 | write it again
open-files | = | worker:0 | as many files and connections | ulimit -n
missing-library | = | worker:0 | libcudart.so.99 isn't | and-cuda
evaluator-in-cluster | configuration | worker:0 | not part of the training cluster | leave it out
"""
EXPECTED = {
    mistake: (mistake if name == "=" else name, *said)
    for mistake, name, *said in (row.split(" | ") for row in ROWS.strip().splitlines())
}
# where tasks make the same mistake, or disagree, whoever is the first says so
EITHER = {
    "duplicate-index": ("worker:0", "copy 1", "copy 2"),
    "keras-fit-multi-worker": ("worker:0", "worker:1"),
    "renewed-server": ("worker:1", "worker:2"),
    "mismatched-sizes": ("worker:0", "worker:1"),
    "mismatched-shapes": ("worker:0", "worker:1"),
}
# what is said as well of a peer that has died: its heartbeats and its closed socket race
OTHER_CAUSES = {"dead-peer": "has gone: it died, was stopped, or ended before the others"}
# mistake -> (strategy, where the linter points)
LINTED = {
    "wrong-index": (None, "task.index"),
    "python-repr": (None, "TF_CONFIG"),
    "misspelled-job": (None, "cluster.workers"),
    "type-not-in-cluster": (None, "task.type"),
    "no-task": (None, "task"),
    "ps-strategy-without-ps": ("parameter-server", "cluster"),
    "multi-worker-with-ps": ("multi-worker", "cluster"),
    "evaluator-in-cluster": (None, "cluster.evaluator"),
}
TOGETHER = {
    "duplicate-index": "copy 1 and copy 2 are both worker:0",
    "duplicate-index-elsewhere": "copy 1 and copy 2 are both worker:1",
    "mismatched-sizes": "worker:0 lists 2 worker tasks, worker:1 3",
    "missing-peer": "worker:1: is in the cluster, and no configuration here is for it",
}
SYMPTOMS = (*CONFIGURATION, *STOPS, *OLD_PROGRAMS, *EXCEPTIONS, *COLLATERAL)
SAID = [(symptom, said) for symptom in SYMPTOMS for said in symptom.said]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("mistakes")


@pytest.fixture(scope="module")
def made(folder):
    """mistake -> its tasks, each with task, tf_config, log and status; all that TensorFlow says."""
    return make_mistakes(folder, "0")


def make_mistakes(folder, log_level, *names):
    if sys.platform != "linux":
        pytest.skip("the program forks after importing TensorFlow, which is safe on Linux only")
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": log_level, "TMPDIR": str(folder)}
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), *names],
        env=environment,
        text=True,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        output, errors = process.communicate(timeout=LIMIT_SECONDS)
    finally:
        if process.poll() is None:  # its tasks ask the kernel to be killed when it dies
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert process.returncode == 0, errors[-2000:]
    records = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return {record["mistake"]: record["tasks"] for record in records}


def logs_of(tasks):
    return {task["task"]: task["log"] for task in tasks}


def configs_of(tasks):
    return {task["task"]: task["tf_config"] for task in tasks if task["tf_config"]}


@pytest.mark.parametrize("mistake", EXPECTED)
def test_diagnose_names_cause_task_and_cure(made, mistake):
    name, task, cause, cure = EXPECTED[mistake]
    tasks = made[mistake]
    found = diagnose_cluster(logs_of(tasks), configs_of(tasks))
    logs = "\n\n".join(task["log"][-1500:] for task in tasks)
    assert found is not None, logs
    assert found.name == name, (found, logs)
    causes = (cause, OTHER_CAUSES.get(mistake, cause))
    assert any(words in found.cause for words in causes) and cure in found.cure, found
    assert found.task in EITHER.get(mistake, (task,)), found
    assert "\n" not in found.cause + found.cure + found.evidence


@pytest.mark.parametrize("mistake", sorted(set(EXPECTED) - {"evaluator-in-cluster"}))
def test_the_evidence_stands_in_a_log(made, mistake):
    tasks = made[mistake]
    found = diagnose_cluster(logs_of(tasks), configs_of(tasks))
    said = " ".join(" ".join(task["log"].split()) for task in tasks)
    assert found.evidence and found.evidence.rstrip("…") in said


@pytest.mark.parametrize("mistake", LINTED)
def test_the_linter_sees_it_before_it_starts(made, mistake):
    strategy, where = LINTED[mistake]
    findings = lint(made[mistake][-1]["tf_config"], strategy)
    errors = [finding for finding in findings if finding.severity == "error"]
    assert where in [finding.where for finding in errors], findings
    assert all(finding.cure for finding in errors)


@pytest.mark.parametrize("mistake", TOGETHER)
def test_the_linter_of_all_members_sees_what_one_alone_does_not_show(made, mistake):
    configs = configs_of(made[mistake])
    assert all(is_right(lint(text)) for text in configs.values())
    said = [f"{f.where}: {f.what}" for name, f in lint_together(configs) if name == "together"]
    assert any(TOGETHER[mistake] in line for line in said), said


@pytest.mark.parametrize(
    "mistake", ["missing-leader", "missing-server", "multi-worker-with-ps", "evaluator-in-cluster"]
)
def test_these_wait_without_an_error(made, mistake):
    """What the linter and the diagnosis say of them is true: nothing ends by itself."""
    assert [task["status"] for task in made[mistake]] == [None] * len(made[mistake])


def test_without_tf_config_a_worker_is_known_to_wait(made):
    [task] = made["missing-leader"]
    assert diagnose(task["log"]).name == "server"


def test_a_late_tf_config_trains_alone_and_ends_well(made):
    assert [task["status"] for task in made["late-tf-config"]] == [0, 0]
    assert all("of 1 replicas" in task["log"] for task in made["late-tf-config"])


def test_the_survivor_is_told_from_the_dead(made):
    """The log of the task that was killed says nothing; the survivor's names it."""
    survivor, dead = made["dead-peer"]
    assert dead["status"] == -signal.SIGKILL and survivor["status"] == 1
    assert diagnose(survivor["log"]).task == "worker:1"
    assert diagnose(dead["log"], dead["tf_config"]) is None


def test_the_exception_alone_is_enough(made):
    """The last lines of a log, as an exception's text, name the same mistake."""
    for mistake in (
        "taken-port late-strategy wrong-index keras-fit-multi-worker dead-parameter-server"
    ).split():
        log = next(task["log"] for task in made[mistake] if '\n  File "' in task["log"])
        error = log[log.rindex('\n  File "') + 1 :]
        assert diagnose(error).name == EXPECTED[mistake][0], error


def test_a_silenced_log_says_what_python_says_and_how_to_hear_the_rest(folder):
    """At TF_CPP_MIN_LOG_LEVEL=3, as clusters run: errors are known as well, waiting is silent."""
    names = ("wrong_index", "late_tf_config", "missing_leader")
    made = make_mistakes(folder, "3", *names)
    assert len(made) == len(names)
    for mistake, tasks in made.items():
        found = diagnose_cluster(logs_of(tasks), configs_of(tasks))
        name, task, cause, _ = EXPECTED[mistake]
        if mistake == "missing-leader":
            assert (found.name, tasks[0]["log"]) == ("silent", "")
            assert "TF_CPP_MIN_LOG_LEVEL=0" in found.cure
        else:
            assert (found.name, found.task) == (name, task) and cause in found.cause


def test_no_mistake_is_left_out(made):
    assert set(made) == set(EXPECTED) | {"multi-worker-with-ps"}


def test_nothing_is_left_behind(made, folder):
    """No task of any mistake is alive, and no temporary file is left."""
    started = [task["process"] for tasks in made.values() for task in tasks]
    assert len(set(started)) == len(started) > 30
    alive = [number for number in started if is_ours(number)]
    assert alive == [] and os.listdir(folder) == []


def is_ours(number):
    try:
        return PROGRAM.name.encode() in Path(f"/proc/{number}/cmdline").read_bytes()
    except OSError:
        return False


def test_an_allocator_that_tries_again_has_not_run_out():
    said = (
        "Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.00GiB with freed_by_count=0. "
        "The caller indicates that this is not a failure"
    )
    assert diagnose(said) is None


@pytest.mark.parametrize("symptom, said", SAID, ids=[symptom.name for symptom, _ in SAID])
def test_what_programs_say_has_the_cause_and_the_cure_of_its_entry(symptom, said):
    """What the table says of each is what was printed when it was made to fail."""
    begin = 'Traceback (most recent call last):\n  File "train.py", line 8, in <module>'
    found = diagnose(f"before\n{begin}\n{said}\nafter")
    assert found is not None and found.name == symptom.name
    for told, template in ((found.cause, symptom.cause), (found.cure, symptom.cure)):
        words = re.escape(template).replace(r"\{job\}:\{index\}", ".+")
        assert re.fullmatch(re.sub(r"\\\{\w+\\\}", ".*", words), told)
        assert not re.search(r"\{\w+\}", told)
    assert found.evidence and found.evidence.rstrip("…") in " ".join(said.split())
    assert found.place == ("train.py, line 8" if symptom in EXCEPTIONS else "")
    assert found.is_known == (symptom not in COLLATERAL or symptom.name == "no-server")
