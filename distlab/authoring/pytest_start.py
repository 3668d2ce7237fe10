"""A pytest plugin that makes a start shorter: `addopts` in pyproject.toml names it.

nbval, another plugin, imports nbformat in every run, and it builds a grammar that no
notebook needs. Only a plugin that is named there comes before it.
"""

from utils.environment import skip_uri_grammar

skip_uri_grammar()
