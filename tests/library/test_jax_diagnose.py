"""What JAX's coordination service says when a start goes wrong, and what `diagnose` makes of it.

The lines are those of jax 0.10.2: from runs with each mistake, and one from its source.
"""

import pytest

from utils.tf_config import diagnose
from utils.tf_config.build import build_cluster
from utils.tf_config.spec import TaskConfig

FATAL = (
    "F1125 07:16:44.924508   11813 client.h:80] Terminating process because the JAX distributed "
    "service detected fatal errors. This most likely indicates that another task died; see the "
    "other task logs for more details. absl::Status: "
)
MISTAKES = {
    "a peer that never starts": (
        f"{FATAL}DEADLINE_EXCEEDED: Deadline Exceeded\n\n"
        "RPC: /xla.coordination.CoordinationService/RegisterTask\n",
        ("missing-peer", "waited in vain", "start every process"),
    ),
    "an index that is too high": (
        "ValueError: process_id and num_processes must be nonnegative, with process_id < "
        "num_processes. Got process_id=2, num_processes=2.",
        ("wrong-index", "process 2 is out of range for 2", "count from 0"),
    ),
    "one index twice": (
        f"{FATAL}ABORTED: 1 unexpectedly tried to connect with a different incarnation. It has "
        "likely restarted.\n\nRPC: /xla.coordination.CoordinationService/PollForError",
        ("duplicate-index", "they are process 1", "its own number"),
    ),
    "a device used before": (
        "RuntimeError: jax.distributed.initialize() must be called before any JAX calls that might "
        "initialise the XLA backend.",
        ("late-strategy", "had used a device", "keras.distribution.initialize() first"),
    ),
    "no address": (
        "ValueError: coordinator_address should be defined.",
        ("no-task", "which one this is", "distlab run"),
    ),
    "an address alone": (
        "ValueError: Number of processes must be defined.",
        ("no-task", "the number of processes", "takes the numbers as arguments"),
    ),
    "a process that was killed": (
        f"{FATAL}UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):\n1\n"
        "The tasks have crashed. Check the task logs for an earlier error",
        ("dead-peer", "process 1 died or froze", "in its own log"),
    ),
    "machines whose own names lead to loopback": (
        "jax.errors.JaxRuntimeError: UNKNOWN: Gloo context initialization failed: "
        "[external/gloo/gloo/transport/tcp/pair.cc:152] timed out connecting: SO_ERROR: Connection "
        "refused, remote=[127.0.0.1]:3993$1",
        ("missing-peer", "at 127.0.0.1", "own name"),
    ),
    "a collective that no one else comes to": (
        "jax.errors.JaxRuntimeError: UNKNOWN: Gloo context initialization failed: "
        "DEADLINE_EXCEEDED: GetKeyValue() timed out with key: cpu:gloo/0,2048/1",
        ("dead-peer", "first collective", "the same program"),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_with_jax_is_named(mistake):
    said, (name, cause, cure) = MISTAKES[mistake]
    found = diagnose(f"Traceback (most recent call last):\n{said}")
    assert found is not None and found.name == name
    assert cause in found.cause and cure in found.cure and "{" not in str(found)


def test_a_task_that_trains_gets_what_keras_on_jax_reads():
    cluster = build_cluster(workers=2, chief=True, hosts=["a", "b", "c"])
    told = TaskConfig(cluster, "worker", 1).to_variables()
    addresses = [*cluster.chief, *cluster.worker]
    assert told["KERAS_DISTRIBUTION_JOB_ADDRESSES"] == ",".join(addresses)
    assert told["KERAS_DISTRIBUTION_NUM_PROCESSES"] == "3"
    assert told["KERAS_DISTRIBUTION_PROCESS_ID"] == "2"
    assert told["JAX_COORDINATOR_ADDRESS"] == addresses[0]
    served = build_cluster(workers=1, ps=1, hosts=["a", "b", "c"])
    for job, index in served.tasks:
        assert TaskConfig(served, job, index).to_variables().keys() == {"TF_CONFIG"}
