"""Training with parameter servers: a coordinator schedules steps, workers run them.

Everything here runs in the coordinator's process, inside a function given to
`LocalCluster(workers=2, ps=2).run(...)`, and finds its cluster in TF_CONFIG.

| module | what it shows |
|---|---|
| `coordination` | strategy, `ClusterCoordinator` and partitioner from TF_CONFIG |
| `placement` | which piece of which variable lives on which server |
| `asynchronous` | closures scheduled and joined; staleness, measured and bounded |
| `counting` | tickets, a step counter that loses nothing, and Keras's that does |
| `synchronous` | rounds that wait for all workers, or for the first N of N + b (backup workers) |
| `checkpoints` | periodic checkpoints in the coordinator, and going on from the last |
| `evaluation` | inline on the workers, and beside the training from its checkpoints |
| `delays`, `traffic` | a worker slowed for real; bytes on the wire, counted |
| `in_process` | servers as threads of one process, and why they can hang |

Only `records` is imported here: importing this package does not import TensorFlow.
"""

from .records import Evaluation as Evaluation
from .records import Piece as Piece
from .records import Round as Round
from .records import Update as Update
from .records import count_by_worker as count_by_worker
from .records import make_spans as make_spans
from .records import mean_staleness as mean_staleness
from .records import (
    mean_staleness_by_worker as mean_staleness_by_worker,
)
