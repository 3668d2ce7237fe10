"""Real clusters in a notebook: processes on this machine, TF_CONFIG, diagnosis."""

from utils.cluster.failures import ClusterError as ClusterError
from utils.cluster.local import LocalCluster as LocalCluster
