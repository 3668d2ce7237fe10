"""Starting a kernel: time until TensorFlow is imported in it, forked against fresh, in turn.

Both are started by Jupyter's own manager of kernels, as the server of `distlab lab` does it.
What the warm process costs, once, is shown too: seconds, and the memory that it alone holds.
"""

import statistics

import psutil
from jupyter_client.manager import start_new_kernel
from jupyter_client.provisioning import KernelProvisionerFactory

from distlab.kernel import provisioner
from utils.measure import Stopwatch, format_bytes

LIMIT_SECONDS = 120.0


def run(rounds: int) -> None:
    """Print the seconds of fresh and of forked kernels, and their ratio."""
    print("\nStarting a kernel, seconds until TensorFlow is imported in it")
    with Stopwatch() as watch:
        source = provisioner.install(None)
        if source is None or not source.wait_until_ready(LIMIT_SECONDS):
            print("kernels are not forked here: every start is a fresh one")
            return
    held = psutil.Process(source.pid).memory_full_info().uss
    try:
        times: dict[str, list[float]] = {provisioner.NAME: [], "local-provisioner": []}
        for _ in range(max(2, rounds // 3)):
            for name, seconds in times.items():
                KernelProvisionerFactory.instance().default_provisioner_name = name
                seconds.append(time_start())
    finally:
        source.close()
    forked, fresh = (statistics.median(seconds) for seconds in times.values())
    print(f"fresh       {fresh:>8.2f}")
    print(f"forked      {forked:>8.2f}   {fresh / forked:.1f} times as fast")
    print(f"the warm process itself, once: {watch.seconds:.2f} s, {format_bytes(held)}", flush=True)


def time_start() -> float:
    with Stopwatch() as watch:
        manager, client = start_new_kernel(startup_timeout=LIMIT_SECONDS)
        reply = client.execute_interactive(
            "import tensorflow", timeout=LIMIT_SECONDS, output_hook=lambda message: None
        )
    assert reply["content"]["status"] == "ok", reply
    client.stop_channels()
    manager.shutdown_kernel(now=True)
    return watch.seconds
