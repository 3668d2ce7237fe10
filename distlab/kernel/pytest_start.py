"""A pytest plugin that makes tests shorter: `addopts` in pyproject.toml names it.

nbval, another plugin, is loaded in runs of notebooks alone (`--nbval`): it imports Jupyter, which
takes longer than most tests. Only a plugin named there comes before it. Lessons with a long
run are run in their reduced form, unless DISTLAB_REDUCED is set to nothing (`make test-all`). And
the kernels of notebooks are forked from one warm process, like `distlab lab`'s, unless the plugin
"warm start" (tests/warm_start.py) forks all programs that import TensorFlow.
"""

import os
from typing import Any

import pytest

from utils.environment import skip_uri_grammar

skip_uri_grammar()
os.environ.setdefault("DISTLAB_REDUCED", "1")
_asked: list[bool] = []


def pytest_plugin_registered(plugin: object, manager: Any) -> None:
    """Leave nbval out where the command line doesn't name it; `Config` is the first plugin."""
    if isinstance(plugin, pytest.Config):
        words = [*plugin.invocation_params.args, os.environ.get("PYTEST_ADDOPTS", "")]
        if "--nbval" not in " ".join(map(str, words)):
            manager.set_blocked("nbval")


@pytest.hookimpl(tryfirst=True)  # a notebook's kernel starts when its first cell is set up
def pytest_runtest_setup(item: Any) -> None:
    if item.path.suffix != ".ipynb":
        return
    from distlab.kernel.provisioner import WarmProvisioner, install

    WarmProvisioner.notebook = str(item.path)
    if _asked:
        return
    _asked.append(True)
    if source := install(None, forking=not item.config.pluginmanager.hasplugin("warm start")):
        item.config.add_cleanup(source.close)
        start = source.start
        # nbval throws away what a kernel writes to its own error stream: here there is none
        source.start = lambda words, kept: start(words, {**kept, "stderr": None})
