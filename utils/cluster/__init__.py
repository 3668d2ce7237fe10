"""Real clusters in a notebook: processes on this machine, TF_CONFIG, diagnosis.

The way of a task:
1. `local` LocalCluster.start packs the function (`task.pack_call`: cloudpickle, and the
   caller's `sys.path`, as modules travel by name) and makes a job.
2. `job` is what a reader holds; its `supervisor` makes each attempt, asks the launcher for
   addresses, and has a `group` made with an order and a TF_CONFIG for each task.
3. `launcher` is the protocol between the group and whatever starts processes;
   `local_launcher` starts them here: pipes (`streams`), a function file, then a fork of the
   warm process (`task_server`, a `processes.fork_server`) or a fresh Python.
4. `task` runs in the new process: `enter_task` takes the descriptors, `perform` unpacks the
   function and calls it, and the result goes back over a framed connection.
5. The group keeps what is told of each task; lines, events and actions go to the `record`,
   which `job` reads. A failure is explained by `failures`, a delay by `waiting`.
6. `processes.registry` marks every process and folder, so that nothing is left behind.
"""

from .failures import ClusterError as ClusterError
from .local import LocalCluster as LocalCluster
from .local_launcher import make_launcher as make_launcher
