"""Give the server of `distlab lab` its kernels: forked if possible, else started.

A provisioner is what Jupyter starts and ends kernels by:
https://jupyter-client.readthedocs.io/en/latest/provisioning.html
"""

import asyncio
import logging
import os
import pathlib
import sys
import tempfile
from importlib.metadata import EntryPoint
from typing import Any

from jupyter_client.provisioning import KernelProvisionerFactory, LocalProvisioner
from traitlets.config import Config

from distlab.keras_backend import read_variables
from distlab.kernel.warm_kernels import NotForked, WarmKernels
from utils.processes.module_command import make_module_command
from utils.processes.private_network import is_private_wanted

NAME, COLD = "distlab-warm", "DISTLAB_COLD_START"
MAX_FOLDER = 55  # letters: the path of a Unix socket has at most 107, its name there has up to 50
log = logging.getLogger("distlab.kernel")


class WarmProvisioner(LocalProvisioner):
    """Jupyter's own provisioner, but for where the process comes from."""

    source: WarmKernels | None = None  # of this server
    notebook = ""  # whose kernel is started; a server names it in JPY_SESSION_NAME

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        environment = kwargs.get("env") or os.environ
        if own := read_variables(environment.get("JPY_SESSION_NAME") or self.notebook):
            kwargs["env"] = {**environment, **own}
        settings = self._scrub_kwargs(kwargs)
        try:
            if self.source is None:
                why = f"{COLD} is set" if os.environ.get(COLD) else "this program forks none"
                raise NotForked(why)
            kernel = await asyncio.to_thread(self.source.start, cmd, settings)
        except NotForked as error:
            log.info("The kernel starts from scratch: %s", error)
            if is_private_wanted():
                cmd = make_module_command("utils.processes.private_network", *cmd)
            return await super().launch_kernel(cmd, **kwargs)
        self.process, self.pid, self.pgid = kernel, kernel.pid, kernel.pid
        self.cwd = pathlib.Path(settings.get("cwd") or os.getcwd())
        return self.connection_info


def install(server: Any, *, forking: bool = True) -> WarmKernels | None:
    """Let `server` (a ServerApp) fork its kernels; None if that isn't possible, or not wanted."""
    if server is not None and is_private_wanted():
        talk_by_files(server.kernel_manager)
    elif sys.platform != "linux" or os.environ.get(COLD):
        return None
    forking = forking and not os.environ.get(COLD)
    source = WarmProvisioner.source = WarmKernels() if forking else None
    factory = KernelProvisionerFactory.instance(parent=server)
    value = f"{WarmProvisioner.__module__}:{WarmProvisioner.__name__}"
    factory.provisioners[NAME] = EntryPoint(NAME, value, factory.GROUP_NAME)
    factory.default_provisioner_name = NAME
    return source


def talk_by_files(kernels: Any) -> None:
    """Let the server reach its kernels by Unix sockets: a private network has no way in."""
    kernels.update_config(Config(KernelManager={"transport": "ipc"}))
    if len(kernels.connection_dir) > MAX_FOLDER:
        kernels.connection_dir = tempfile.mkdtemp(prefix="jupyter-")
