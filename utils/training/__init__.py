"""One training program for every strategy: records in, records out.

    from utils.training import train
    report = train(strategy="mirrored", replicas=4, dataset="fashion_mnist", epochs=2)

Importing this package doesn't import TensorFlow; `train` does.

- `accumulation`: a large batch of small ones: gradients added up over micro-batches, then one
  update
- `as_task`: training as the task of a cluster that TF_CONFIG names
- `checkpoints`: a run's checkpoints: held by one run at a time, written whole, found again newest
  first
- `config`: what to train, as a plain record that checks itself. Imports no TensorFlow
- `counting_feed`: workers that share the bundled images by files, or that read everything each
- `input_feed`: what the replicas of a run are fed: the bundled images here, own data in `own_data`
- `large_batch`: learning rates for large batches: the linear scaling rule and gradual warm-up
- `layerwise`: LARS and LAMB: each layer's step in proportion to the size of its own weights
- `loops`: the two loops, custom and Keras's `fit`: each trains the rest of an epoch
- `loss_scale`: float16 on several replicas: a loss scale that all of them share, and steps that
  all skip
- `on_cluster`: training on a cluster of processes that starts here
- `own_data`: own data: a `tf.data.Dataset`, or a function that makes one, as `TrainConfig`
  describes
- `program`: the training program: one for every strategy
- `progress`: where a run stands: counted step by step, reported as events, saved in checkpoints
- `report`: the result of a training run. Imports no TensorFlow
- `scene_feed`: scenes for the replicas: TFRecord shards, read in an order of seed and epoch alone
- `state`: what every loop trains: model, optimizer, loss and metrics, made in the strategy's scope
- `step`: how a step works: forward, loss, gradient, update, metrics, on every strategy alike
- `warm_up`: the rates of `training.large_batch` as a Keras learning-rate schedule
- `worker_group`: the workers that train one model together, seen from one of them
- `parameter_server`: training with parameter servers: a coordinator schedules steps, workers run
  them
- `recovery`: training that survives: a multi-worker run that a kill, a freeze or a notice doesn't
  spoil
- `tpu_ready`: what would stop a Keras model's training step on a TPU, found with XLA on the CPU
"""

from .config import TrainConfig as TrainConfig
from .program import train as train
from .report import TrainingStopped as TrainingStopped
from .report import TrainReport as TrainReport
