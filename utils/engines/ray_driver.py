"""Ray: one actor for each agent, which Ray starts again when it dies."""

import contextlib
import os
import secrets
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

from .driver import JOIN_SECONDS, GivesUp, Wanted, check_reachable, drive, limit
from .options import to_ray_options

NODES = 2
STORE_BYTES = 80 * 2**20  # nothing goes through Ray's object store; its least is 75 MB
VARIABLES = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_raylet_start_wait_time_s": "60",  # on a busy machine its parts take long to import
    "RAY_agent_register_timeout_ms": "120000",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


def make_actor(ray: Any) -> Any:
    """Return the actor that keeps one agent. Defined here, so that it travels by value."""

    @ray.remote(max_restarts=-1, max_task_retries=-1, num_cpus=1)
    class Keeping:
        def run(self, command, environment):
            import os
            import subprocess

            process = subprocess.Popen(
                command, env={**os.environ, **environment}, stdin=subprocess.PIPE
            )
            if status := process.wait():
                os._exit(status)  # Ray starts the actor again, and calls again

    return Keeping


def hide_slow_import(folder: str) -> None:
    """Let Ray's processes pass over a package that jsonschema would check addresses by.

    Each of them imports jsonschema, for which that package, where Jupyter has brought it,
    takes 3 s: with a dozen processes on two cores, Ray's own start then times out. The
    agents get the path as it was.
    """
    os.makedirs(f"{folder}/quick")
    with open(f"{folder}/quick/rfc3987_syntax.py", "w") as file:
        file.write("raise ImportError('not needed here')\n")
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (f"{folder}/quick", before)))


@contextlib.contextmanager
def open_local_cluster(wanted: Wanted) -> Iterator[str]:
    """Start two nodes on this machine, each with its own temporary folder; give the address."""
    from ray._private import ray_constants
    from ray.cluster_utils import Cluster

    ray_constants.ENABLE_RAY_CLUSTER = False  # or Ray puts this machine's address for 127.0.0.1
    node = {
        "num_cpus": wanted.count,
        "node_ip_address": "127.0.0.1",
        "include_dashboard": False,
        "object_store_memory": STORE_BYTES,
    }
    noted = os.path.join(tempfile.gettempdir(), "ray")  # Ray notes there which head is running
    os.makedirs(noted, exist_ok=True)
    cluster = Cluster()
    try:
        for index in range(NODES):
            cluster.add_node(**node, temp_dir=f"{wanted.folder}/n{index}")
        yield cluster.address
    finally:
        cluster.shutdown()


def main() -> None:
    os.environ.update(VARIABLES)
    path = os.environ.get("PYTHONPATH", "")
    with drive() as (wanted, stop):
        if (
            wanted.address is None
        ):  # Ray's workers listen on all interfaces: callers without a token are refused
            os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
            hide_slow_import(wanted.folder)
            wanted.environment["PYTHONPATH"] = path
        check_reachable(wanted.address)
        import ray

        opened = contextlib.nullcontext(wanted.address) if wanted.address else None
        with opened or open_local_cluster(wanted) as address:
            seconds = JOIN_SECONDS if wanted.address else float("inf")
            why = f"no Ray cluster answers at {address} within {JOIN_SECONDS:g} s. Check its port."
            try:
                with limit(seconds, stop, why):
                    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise GivesUp(
                    f"can't join a Ray cluster at {address}: {str(error).splitlines()[0]}"
                ) from error
            _keep_agents(ray, wanted, stop)
            ray.shutdown()


def _keep_agents(ray: Any, wanted: Wanted, stop: threading.Event) -> None:
    kind = make_actor(ray)
    place = {"scheduling_strategy": "SPREAD", "num_gpus": wanted.gpus} | to_ray_options(
        wanted.options
    )
    actors = [kind.options(**place).remote() for _ in range(wanted.count)]
    running = [
        actor.run.remote(
            wanted.command,
            {**wanted.environment, "DISTLAB_RANK": str(rank), "DISTLAB_AGENT_PIPE": "1"},
        )
        for rank, actor in enumerate(actors)
    ]
    while not stop.wait(0.2):
        ended, running = ray.wait(running, timeout=0) if running else ([], [])
        for one in ended:
            try:
                ray.get(one)
            except ray.exceptions.RayError as error:
                raise GivesUp(
                    f"Ray doesn't restart a lost task: {str(error).splitlines()[0]}"
                ) from error
    for actor in actors:
        ray.kill(actor)
    sys.stdout.flush()
