"""Model parallelism that runs: one model on several devices, split by layers, tensors, stages.

- `layers`: each layer on a device of its own
- `tensor`: one dense layer split by columns, by rows, or both
- `pipeline`: stages and micro-batches, in the order of a schedule of `utils.schedules`
- `stashing`: a pipeline that does not wait for its updates (PipeDream)
- `processes`: one stage in each worker process, over sockets
- `dtensor`: TensorFlow's DTensor on data, model and mixed meshes

Every one gives the loss and the gradients of the unsplit model, and counts what it
holds and sends. TensorFlow is imported when the first of them runs, not here.
"""
