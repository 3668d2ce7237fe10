"""Spark: a barrier stage with one task for each agent, tried again as a whole when one dies.

Independent tasks need no barrier: Spark tries each one again on its own.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from .driver import GivesUp, Wanted, check_reachable, drive

NODES, NODE_MEGABYTES = 2, 512
NEVER = "1000000"


@contextlib.contextmanager
def make_home(folder: str) -> Iterator[None]:
    """Let SPARK_HOME be a folder that may be written, with links to what pyspark ships.

    Not its archive of Python modules: installed ones take a fifth of the time to import, and each
    worker imports them anew.
    """
    import pyspark

    home = Path(folder, "spark")
    home.mkdir()
    for part in Path(pyspark.__file__).parent.iterdir():
        if part.name != "python":
            (home / part.name).symlink_to(part)
    os.environ.update(SPARK_HOME=str(home), SPARK_LOCAL_IP="127.0.0.1")
    yield


def configure(wanted: Wanted) -> dict[str, str]:
    """Return Spark's settings: those without which a barrier stage isn't tried again, too."""
    cores = -(-wanted.count // NODES)
    local = f"local-cluster[{NODES},{cores},{NODE_MEGABYTES}]"
    settings = {
        "spark.master": wanted.address or local,
        "spark.app.name": "distlab",
        "spark.ui.enabled": "false",
        "spark.python.worker.reuse": "false",  # one strategy a process
        "spark.python.use.daemon": "false",
        "spark.stage.maxConsecutiveAttempts": NEVER,
        "spark.task.maxFailures": NEVER,
        "spark.deploy.maxExecutorRetries": "-1",
        "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
        "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": NEVER,
        "spark.executor.memory": f"{NODE_MEGABYTES}m",
        "spark.driver.memory": f"{NODE_MEGABYTES}m",
        "spark.local.dir": wanted.folder,
    }
    if not wanted.address:
        here = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        settings.update(here)
    return settings | dict(word.split("=", 1) for word in wanted.options)


def make_task(command: list[str], environment: dict[str, str]):  # noqa: ANN201
    """Return what each task of the stage does. Defined here, so that it travels by value."""

    def run(numbers):
        import os
        import subprocess

        from pyspark import TaskContext

        rank = TaskContext.get().partitionId()
        here = {**os.environ, **environment, "DISTLAB_RANK": str(rank), "DISTLAB_AGENT_PIPE": "1"}
        process = subprocess.Popen(command, env=here, stdin=subprocess.PIPE)
        status = process.wait()
        if status:
            raise RuntimeError(f"task {rank} ended with status {status}")
        yield rank, status

    return run


def main() -> None:
    with drive() as (wanted, stop), make_home(wanted.folder):
        check_reachable(wanted.address)
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        from pyspark import SparkConf, SparkContext

        try:
            context = SparkContext(conf=SparkConf().setAll(configure(wanted).items()))
        except Exception as error:
            where = wanted.address or "local-cluster"
            raise GivesUp(f"can't join Spark at {where}: {str(error).splitlines()[0]}") from error
        failures: list[str] = []
        threading.Thread(target=_run_stage, args=[context, wanted, failures], daemon=True).start()
        while not stop.wait(0.2):
            if failures:
                raise GivesUp(failures[0])
        context.cancelAllJobs()
        context.stop()
        os._exit(0)  # the thread waits inside the JVM's connection


def _run_stage(context, wanted: Wanted, failures: list[str]) -> None:  # noqa: ANN001
    """Run the stage. A failed barrier stage is tried again only when a shuffle follows it."""
    task = make_task(wanted.command, wanted.environment)
    ranks = context.parallelize(range(wanted.count), wanted.count)
    try:
        stage = ranks if wanted.apart else ranks.barrier()
        stage.mapPartitions(task).partitionBy(1).collect()
    except Exception as error:
        first, *others = str(error).strip().splitlines()
        if first.startswith("An error occurred while calling") and others:
            first = others[0].removeprefix(": ")  # Java's
        failures.append(f"Spark gave up the job: {first}")
