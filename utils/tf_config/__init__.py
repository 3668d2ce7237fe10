"""Cluster specifications and TF_CONFIG: build them, lint them, diagnose logs. No TensorFlow.

    cluster = build_cluster(workers=2, ps=1, hosts=["a", "b", "c"])
    texts = build_tf_configs(cluster)          # {"worker:0": '{"cluster": …}', …}
    config = parse_tf_config(texts["worker:0"])
    findings = lint(os.environ["TF_CONFIG"])   # each one line: severity, where, what, cure
    found = diagnose(log_text, os.environ["TF_CONFIG"])

TF_CONFIG is what `tf.distribute.cluster_resolver.TFConfigClusterResolver` reads.

- `build`: builds cluster specifications and TF_CONFIG: addresses, ports, texts, views for
  resolvers
- `diagnose`: from an error or a log of a cluster's task to what went wrong and what to do
- `lint`: the linter: what is wrong with a TF_CONFIG, where, and what to write instead
- `rules`: the rules that one TF_CONFIG must keep, and what breaking one gives: a `LintFinding`
- `spec`: a cluster and one of its tasks as plain, frozen data
- `symptoms`: the messages that identify a failed start, read from `symptoms.toml`
- `tracebacks`: the last traceback in a task's output: its error in one line, and the user's line
  that led there
"""

from .build import bind_ports as bind_ports
from .build import build_cluster as build_cluster
from .build import build_tf_config as build_tf_config
from .build import build_tf_configs as build_tf_configs
from .build import format_export as format_export
from .build import hold_free_ports as hold_free_ports
from .build import pick_free_ports as pick_free_ports
from .build import view_as_simple as view_as_simple
from .build import view_as_slurm as view_as_slurm
from .diagnose import Diagnosis as Diagnosis
from .diagnose import diagnose as diagnose
from .diagnose import diagnose_cluster as diagnose_cluster
from .diagnose import is_collateral as is_collateral
from .lint import STRATEGIES as STRATEGIES
from .lint import lint as lint
from .lint import lint_together as lint_together
from .lint import parse_tf_config as parse_tf_config
from .lint import split_texts as split_texts
from .rules import LintFinding as LintFinding
from .rules import is_right as is_right
from .spec import ClusterSpec as ClusterSpec
from .spec import TaskConfig as TaskConfig
from .spec import deal_addresses as deal_addresses
from .spec import describe_role as describe_role
from .spec import is_loopback as is_loopback
from .spec import join_address as join_address
from .spec import split_address as split_address
from .tracebacks import read_error as read_error
