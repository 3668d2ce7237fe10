"""Real clusters in a notebook: processes on this machine, TF_CONFIG, diagnosis."""

from .failures import ClusterError as ClusterError
from .local import LocalCluster as LocalCluster
