"""Running a program as the tasks of a cluster: any program that reads TF_CONFIG.

    report = run_program(["python", "train.py", "--epochs", "3"], RunSettings(workers=4))

What torchrun is for PyTorch: ports and ranks are assigned, every task gets its TF_CONFIG, all
start again when one dies, what they write is merged and kept in one log a task, and the
first error is named with its likely cause. Nothing is left behind, however this process ends.

| module | what it holds |
|---|---|
| `settings` | what to run: how many tasks, restarts, logs; what a run reports |
| `task_process`, `task_output` | one task: a process group, its end; its log and its lines |
| `attempt` | all tasks of one start, from first to last |
| `local` | `run_program`: attempts on this machine, until one succeeds or none is left |
| `signals` | SIGINT and SIGTERM while a run goes on |
| `rendezvous` | `run_at_rendezvous`: the same on several machines that meet at an address |
| `engine_run` | `run_on_engine`: the same run, its tasks started by Ray, Spark or Slurm |
| `engine_launcher` | `make_launcher`: functions on an engine, as on a `LocalCluster` |
| `catalog` | the engines that are known, and what each needs here |
| `hub`, `agent`, `handshake` | where agents call; an engine's part of a task; who has the key |
| `driver`, `ray_driver`, `spark_driver`, `slurm_driver` | the process that asks an engine |
| `slurm_local` | a Slurm cluster of two nodes on this machine |

Importing this package does not import TensorFlow.
"""

from .catalog import ENGINES as ENGINES
from .engine_launcher import make_launcher as make_launcher
from .engine_run import run_on_engine as run_on_engine
from .local import run_program as run_program
from .rendezvous import RendezvousSettings as RendezvousSettings
from .rendezvous import run_at_rendezvous as run_at_rendezvous
from .settings import RunReport as RunReport
from .settings import RunSettings as RunSettings
from .settings import TaskReport as TaskReport
