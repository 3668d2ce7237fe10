"""Why a start of a cluster failed, read from what its tasks printed and raised."""

import json
from collections.abc import Callable
from typing import Any

from utils.cluster import ClusterError
from utils.cluster.job import Job
from utils.tf_config import Diagnosis, diagnose_cluster


def diagnose_job(
    job: Job, change: Callable[[dict[str, Any]], str] = json.dumps, seconds: float = 30.0
) -> Diagnosis:
    """Wait for `job`, which is stopped after `seconds`, and return the first cause of its failure.

    `change` is what each task did to its TF_CONFIG before it started.
    """
    try:
        job.wait(seconds)
    except ClusterError:
        pass
    logs, configs = {}, {}
    for task in job.tasks:
        raised = task.result[2] if task.result and task.result[0] == "error" else ""
        name = task.name.replace(" ", ":")
        logs[name] = "\n".join([*task.lines, raised]).strip()
        configs[name] = change(json.loads(task.order.environment["TF_CONFIG"]))
    return diagnose_cluster(logs, configs)
