"""Training with parameter servers: a coordinator schedules steps, workers run them.

Everything here runs in the coordinator's process, inside a function given to
`LocalCluster(workers=2, ps=2).run(...)`, and finds its cluster in TF_CONFIG.

| module | what it holds |
|---|---|
| `coordination` | strategy, `ClusterCoordinator` and partitioner from TF_CONFIG |
| `variables` | the pieces of variables and their servers; reading them as one |
| `counting` | a step counter that loses nothing, and Keras's made so |
| `loop` | closures scheduled on whatever worker is free, joined and fetched |
| `checkpoints` | periodic checkpoints in the coordinator, and resuming from the last |

Importing this package doesn't import TensorFlow.
"""
