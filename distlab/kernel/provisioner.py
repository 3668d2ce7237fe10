"""How the server of `distlab lab` comes by its kernels: forked where it can be, else started.

A provisioner is what Jupyter starts and ends kernels by:
https://jupyter-client.readthedocs.io/en/latest/provisioning.html
"""

import asyncio
import logging
import os
import pathlib
import sys
from importlib.metadata import EntryPoint
from typing import Any

from jupyter_client.provisioning import KernelProvisionerFactory, LocalProvisioner

from distlab.keras_backend import read_variables
from distlab.kernel.warm_kernels import NotForked, WarmKernels

NAME = "distlab-warm"
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
            kernel = await asyncio.to_thread(self.source.start, cmd, settings)
        except NotForked as error:
            log.info("The kernel starts from scratch: %s", error)
            return await super().launch_kernel(cmd, **kwargs)
        self.process, self.pid, self.pgid = kernel, kernel.pid, kernel.pid
        self.cwd = pathlib.Path(settings.get("cwd") or os.getcwd())
        return self.connection_info


def install(server: Any) -> WarmKernels | None:
    """Let `server` (a ServerApp) fork its kernels; None where that is not done."""
    if sys.platform != "linux" or os.environ.get("DISTLAB_COLD_START"):
        return None
    source = WarmProvisioner.source = WarmKernels()
    factory = KernelProvisionerFactory.instance(parent=server)
    value = f"{WarmProvisioner.__module__}:{WarmProvisioner.__name__}"
    factory.provisioners[NAME] = EntryPoint(NAME, value, factory.GROUP_NAME)
    factory.default_provisioner_name = NAME
    return source
