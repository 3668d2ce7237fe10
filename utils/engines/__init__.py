"""Running a program as the tasks of a cluster: any program that reads TF_CONFIG.

    report = run_program(["python", "train.py", "--epochs", "3"], RunSettings(workers=4))

What torchrun is for PyTorch: ports and ranks are assigned, every task gets its TF_CONFIG, all
start again when one dies, their output is merged and kept in a log for each task, and the
first error is named with its likely cause. Nothing is left behind, however this process ends.

| module | what it holds |
|---|---|
| `settings` | what to run: how many tasks, restarts, logs; what a run reports |
| `run_record` | the files of a run: logs of each attempt and task, and events.jsonl |
| `programs` | `run_program`: a run on this machine; what a run is on every launcher |
| `rendezvous` | `run_at_rendezvous`: the same on several machines that meet at an address |
| `engine_launcher` | `run_on_engine`: the same, started by Ray, Spark or Slurm; `make_launcher` |
| `catalog` | the known engines, and what each needs here |
| `options` | options of an engine besides tasks: accounts, time, memory |
| `hub`, `agent` | where agents call; an engine's part of a task |
| `driver`, `ray_driver`, `spark_driver`, `slurm_driver` | the process that asks an engine |
| `slurm_local` | a Slurm cluster of two nodes on this machine |
| `manifests` | job files for Kubernetes and clouds |

Restarts, grace, causes and signals come from `cluster.supervisor`. Importing this package
imports neither TensorFlow nor anything that a run doesn't need.
"""

from ..lazy import import_lazily

NAMES = {
    "ENGINES": "catalog",
    "make_launcher": "engine_launcher",
    "run_on_engine": "engine_launcher",
    "run_program": "programs",
    "RendezvousSettings": "rendezvous.settings",
    "run_at_rendezvous": "rendezvous",
    "RunReport": "settings",
    "RunSettings": "settings",
    "TaskReport": "settings",
}
__getattr__ = import_lazily(__name__, NAMES)
