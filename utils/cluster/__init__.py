"""Real clusters: processes, TF_CONFIG, and the one supervisor that keeps them going.

The way of a task:
1. `local` LocalCluster.start packs the function (`task.pack_call`: cloudpickle, and the
   caller's `sys.path`, as modules travel by name) and makes a job. A run of a program
   (`engines.programs`) begins at 2.
2. `job` is what a reader holds. Its `supervisor` makes each attempt, asks the launcher for
   addresses, and has a `group` made with an order and a TF_CONFIG for each task.
3. `launcher` is the protocol between the group and whatever starts processes. Here there are
   pipes (`local_tasks`, `streams`), then a program or a fresh Python (`local_launcher`,
   `cold_task`) or a fork of a warm process (`warm_launcher`, `task_server`).
4. `task` runs in the new process: `enter_task` takes the descriptors, `perform` unpacks the
   function and calls it, and the result goes back over a framed connection.
5. The group keeps the reports of each task; lines, events and actions go to the `record`,
   which `job` reads. `failures` explains a failure, `waiting` a delay.
6. `signals` remembers Ctrl-C for a run, `interrupts` stops a job. `grace` ends programs that are
   asked to end and don't, by the `work` that they do. `slowing` freezes a task after each step,
   `traffic` counts its bytes.
7. `processes` says who ends whom, so that nothing is left behind.
"""

from ..lazy import import_lazily

NAMES = {"ClusterError": "failures", "LocalCluster": "local", "make_launcher": "warm_launcher"}
__getattr__ = import_lazily(__name__, NAMES)
