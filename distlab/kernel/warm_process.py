"""The warm process: `python -m distlab.kernel.warm_process DESCRIPTOR`, started by the server.

It imports what a lesson's first cells import, and forks kernels.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from utils.environment import quiet_tensorflow
from utils.processes import forked_program
from utils.processes.fork_server import ForkLoop, serve
from utils.processes.lifetime import name_process
from utils.processes.preload import import_modules, import_tensorflow
from utils.processes.private_network import enter_if_wanted

OURS = ("utils", "distlab")
PRELOADED = (
    "IPython.core.completer ipykernel.kernelapp ipykernel.datapub ipywidgets anywidget "
    "matplotlib.pyplot matplotlib.backends.backend_agg matplotlib.backends.backend_svg "
    "matplotlib_inline.backend_inline psutil"
).split()


class KernelLoop(ForkLoop):
    """Forks kernels: a request is the words of the command, its folder and its environment."""

    def prepare(self) -> Mapping[str, Any]:
        name_process("distlab-warm")
        import_tensorflow()
        with quiet_tensorflow():
            import_modules(PRELOADED)
        return {}

    def run(self, request: Any, body: bytes, descriptors: Sequence[int]) -> int:
        name_process("distlab-kernel")
        forked_program.enter(request["folder"], request["environment"])
        if why := enter_if_wanted():
            print(f"Other users can reach this kernel's ports: {why}", file=sys.stderr)
        forked_program.use_all_cores()
        forked_program.forget_modules(OURS)
        return forked_program.run_to_the_end(lambda: forked_program.run_program(request["words"]))


if __name__ == "__main__":
    serve(KernelLoop())
