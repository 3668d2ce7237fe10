"""A pytest plugin that makes tests shorter: `addopts` in pyproject.toml names it.

nbval, another plugin, imports nbformat in every run, and it builds a grammar that no
notebook needs. Only a plugin that is named there comes before it. And lessons with a long run
are run in their reduced form, unless DISTLAB_REDUCED is set to nothing (`make test-all`).
"""

import os

from utils.environment import skip_uri_grammar

skip_uri_grammar()
os.environ.setdefault("DISTLAB_REDUCED", "1")
