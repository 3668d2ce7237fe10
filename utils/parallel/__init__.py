"""Model parallelism that runs: one model on several devices, split by layers, tensors, stages.

- `layers`: each layer on its own device
- `tensor`: one dense layer split by columns or by rows, over a `group` of devices
- `attention`: one attention layer split by heads
- `pipeline`: stages and micro-batches, in the order of a schedule of `schedules`
- `processes`: one stage in each worker process, over sockets

Every one gives the loss and the gradients of the unsplit model (`parts.run_unsplit`), and
counts the bytes that it holds and sends. TensorFlow is imported when the first of them
runs, not here.

- `stage`: one stage of a running pipeline: it does its operations in order and keeps count
- `traffic`: what crosses between devices: every tensor sent, with its bytes
"""
