"""tf.data pipelines from naive to tuned: shards, stages, measuring, tuning, sharding, data service.

TensorFlow is imported when something is done, not here.

- `chain`: a dataset taken apart into its stages, and put together again with other settings
- `costs`: the cost of each stage of a chain alone, measured on longer and longer beginnings of it
- `examples`: from a record to a training image, one example at a time
- `ladder`: one pipeline, rebuilt a stage at a time, from naive to tuned: each step is one function
- `measuring`: how fast a dataset delivers, whether two deliver the same, and how well an order is
  mixed
- `parsing`: from records to training images, a whole batch at once
- `rebuild`: the stages of a chain, done again with other settings: as a dataset, and as code to
  paste
- `report`: what `tune` found, as a plain record, a text for people and a dictionary for programs
- `scenes`: scenes as TFRecord shards: written one at a time, read back as batches in an order of
  an epoch
- `service`: the tf.data service: a dispatcher and workers as real processes, started from a cell
- `sharding`: who gets which example: the ids that each replica or worker receives, as sets
- `store`: TFRecord shards of PNG examples, and where they are read from: local disk, or a slow
  store
- `trace`: when each stage worked: clock readings taken inside a pipeline while it runs
- `tuning`: `tune`: stage settings found by measuring, the bottleneck, and the code
"""

from ..lazy import import_lazily

NAMES = {
    "batch_form": "parsing",
    "LOCAL": "store",
    "SLOW": "store",
    "Shards": "store",
    "Store": "store",
    "TuneReport": "report",
    "TuneSettings": "rebuild",
    "tune": "tuning",
    "write_shards": "store",
}
__getattr__ = import_lazily(__name__, NAMES)
