"""Distributed training with TensorFlow: what you take home, by name.

    from utils import quiet_tensorflow, train

    with quiet_tensorflow():
        report = train(strategy="mirrored", replicas=2, epochs=1)

`docs/library.md` describes these names, with an example for each group. Everything else in the
folder is internal and may change. A name is loaded when it is first used, so importing this
package doesn't import TensorFlow.

- `checks`: checks of what a caller passes in: one wording for each, and one clear line
- `devices`: what a strategy's replicas run on: all GPUs, logical CPU devices, or a TPU's cores
- `device_iterators`: iterators over several devices that begin and end at once
- `environment`: quiet TensorFlow, seeds and versions. This module never imports TensorFlow
- `errors`: errors that a user can act on: one sentence that names what was wrong and what to do
- `events`: what a running task reports, as JSON lines: a writer and a reader
- `files`: files replaced in one step (a reader sees the old or the new one, never half), and
  folders
- `lazy`: public names of a package that are imported from their modules only when they are needed
- `goodput`: the share of a run's wall time spent on steps that count in the end, from its events
- `gpus`: this machine's GPUs: which ones a process may use, who else uses them, how workers divide
  them
- `measure`: timing, bytes, throughput and peak memory as plain dataclasses
- `models`: small Keras models for 28 x 28 gray images in ten classes, and a U-Net for 64 x 64
  scenes
- `multi_worker`: MultiWorkerMirroredStrategy, made once in each task, on the devices that were
  asked for
- `placement`: the devices that a strategy's replicas run on, for people and programs
- `strategies`: one record for each strategy: where it runs, how it is made, and what is measured
  to work
- `calibrate`: measure this machine, then predict: from one process here to thousands of devices
  elsewhere
- `cluster`: real clusters: processes, TF_CONFIG, and the one supervisor that keeps them going
- `collectives`: all-reduce, written to be read: naive, ring, recursive doubling, tree and
  hierarchical
- `data`: real image data that needs no network: `load("fashion_mnist")` and `load("mnist")`
- `engines`: running a program as the tasks of a cluster: any program that reads TF_CONFIG
- `input_pipeline`: tf.data pipelines from naive to tuned: shards, stages, measuring, tuning,
  sharding, data service
- `keras_multi_worker`: the patches that let Keras 3's `fit` run under MultiWorkerMirroredStrategy
- `parallel`: model parallelism that runs: one model on several devices, split by layers, tensors,
  stages
- `processes`: our own processes: how they start fast, talk to each other and leave nothing behind
- `schedules`: pipeline schedules as plain data: what each stage does, in which order
- `simulate`: predictors: all-reduce, steps, pipelines, memory, failures, whole runs
- `tf_config`: cluster specifications and TF_CONFIG: build them, lint them, diagnose logs
- `training`: one training program for every strategy: records in, records out
"""

import ast
from pathlib import Path

from .lazy import import_lazily

__version__ = "0.2.0"
# The names are listed once, in the stub next to this file, where type checkers look for them.
_stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
ROOM_OF = {
    alias.name: node.module
    for node in _stub.body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}
__all__ = sorted(ROOM_OF)
__getattr__ = import_lazily(__name__, ROOM_OF)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
