"""Keras on JAX: one machine or several, data parallel or sharded, stopped and resumed.

On one machine, as a try on four devices made of the CPU:

    python keras_jax.py --cpu-devices 4 --sharded

On two machines, with a folder that both see; only the index in TF_CONFIG differs:

    node-a$ TF_CONFIG='{"cluster": {"worker": ["node-a:12345", "node-b:12345"]},
              "task": {"type": "worker", "index": 0}}' python keras_jax.py
    node-b$ TF_CONFIG='{"cluster": {"worker": ["node-a:12345", "node-b:12345"]},
              "task": {"type": "worker", "index": 1}}' python keras_jax.py

KERAS_DISTRIBUTION_JOB_ADDRESSES, _NUM_PROCESSES and _PROCESS_ID do the same. On CPUs, each
machine's own name must lead to an address that the other reaches: /etc/hosts often has 127.0.1.1.
Process 0 listens on ALL interfaces of its machine, without a password: use a network that you
trust. When a process dies, the others notice after 100 s. End them, and start all again with the
same command.

Keras 3.15, JAX 0.10. Data: FASHION_MNIST=/path/to/file.npz with x_train, y_train, x_test, y_test,
the same on every machine. Every process ends with a line of JSON: loss and accuracy.
"""

import argparse
import json
import os
from pathlib import Path

os.environ["KERAS_BACKEND"] = "jax"  # before Keras is imported, by this or another module

import jax  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402
from jax.experimental import multihost_utils  # noqa: E402

DATA = Path(__file__).parents[1] / "utils/data/bundled/fashion_mnist.npz"
GLOBAL_BATCH_SIZE = 64  # of all devices of all processes together


def join_cluster() -> tuple[int, int]:
    """Wait for the other processes; return this one's number, and how many there are."""
    config = json.loads(os.environ.get("TF_CONFIG", "{}"))
    if "KERAS_DISTRIBUTION_NUM_PROCESSES" in os.environ:
        keras.distribution.initialize()
    elif config:
        workers = config["cluster"]["worker"]
        keras.distribution.initialize(",".join(workers), len(workers), config["task"]["index"])
    return jax.process_index(), jax.process_count()


def make_distribution(sharded: bool):
    """Return how weights and batches lie on the devices of all processes."""
    devices = keras.distribution.list_devices()
    mesh = keras.distribution.DeviceMesh((len(devices),), ("batch",), devices)
    if not sharded:  # every device has all weights, and its part of each batch
        return keras.distribution.DataParallel(mesh, auto_shard_dataset=False)
    # Weights (and momentum, which follows them) are cut over the same axis as the batch, as FSDP
    # and ZeRO 3 do. A key that matches no variable shards nothing, and nobody tells you.
    layouts = keras.distribution.LayoutMap(mesh)
    layouts[".*conv/kernel"] = (None, None, None, "batch")
    layouts[".*logits/kernel"] = ("batch", None)
    return keras.distribution.ModelParallel(
        layout_map=layouts, batch_dim_name="batch", auto_shard_dataset=False
    )


def build_model() -> keras.Model:
    layers = [keras.Input((28, 28, 1)), keras.layers.Conv2D(32, 3, activation="relu", name="conv")]
    layers += [keras.layers.MaxPooling2D(), keras.layers.Flatten()]
    model = keras.Sequential([*layers, keras.layers.Dense(10, name="logits")])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), loss, metrics=["accuracy"])
    model.optimizer.build(model.trainable_variables)  # before restoring: momentum is state too
    return model


def save(path: Path, state: list, step: int, is_chief: bool) -> None:
    """Write whole arrays, so that they can be restored under any layout. Needs all processes."""
    arrays = [multihost_utils.process_allgather(each.value, tiled=True) for each in state]
    if is_chief:
        part = path.with_suffix(".part.npz")
        np.savez(part, *arrays, step=step)
        os.replace(part, path)  # whole or not at all
        print(f"saved step {step}", flush=True)


def restore(path: Path, state: list) -> int:
    """Put what was saved into the variables, each in its own layout; return the step."""
    with np.load(path) as saved:
        for number, variable in enumerate(state):
            variable.assign(saved[f"arr_{number}"])
        return int(saved["step"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cpu-devices", type=int, help="split the CPU into N devices")
    parser.add_argument("--sharded", action="store_true", help="cut weights over the devices")
    parser.add_argument("--checkpoint", default="checkpoint.npz", help="a file seen by all")
    parser.add_argument("--checkpoint-every", type=int, default=50, help="steps")
    parser.add_argument("--epochs", type=int, default=2, help="in all, those before included")
    options = parser.parse_args()
    if options.cpu_devices:  # before the first device is asked for
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", options.cpu_devices)

    keras.utils.set_random_seed(0)  # the same first weights in every process
    rank, processes = join_cluster()
    keras.distribution.set_distribution(make_distribution(options.sharded))  # before the model
    model = build_model()
    state = [*model.variables, *model.optimizer.variables]
    held = sum(each.value.addressable_shards[0].data.nbytes for each in state)
    print(f"{jax.device_count()} devices, {held} bytes of weights and momentum on each", flush=True)
    checkpoint, step = Path(options.checkpoint), 0
    if checkpoint.exists():
        step = restore(checkpoint, state)
        print(f"resumed at step {step}", flush=True)

    data = np.load(os.environ.get("FASHION_MNIST", DATA))
    images, labels = data["x_train"][..., np.newaxis] / np.float32(255), data["y_train"]
    steps_per_epoch, batch_size = len(images) // GLOBAL_BATCH_SIZE, GLOBAL_BATCH_SIZE // processes
    while step < options.epochs * steps_per_epoch:
        epoch, first = divmod(step, steps_per_epoch)
        last = min(first + options.checkpoint_every, steps_per_epoch)
        order = np.random.default_rng(epoch).permutation(len(images))
        order = order[: steps_per_epoch * GLOBAL_BATCH_SIZE].reshape(-1, processes, batch_size)
        own = order[first:last, rank].reshape(-1)  # this process's part of each global batch
        # The loss is the mean over the GLOBAL batch: the program is written for one device.
        model.fit(images[own], labels[own], batch_size, shuffle=False, verbose=0)
        step += last - first
        save(checkpoint, state, step, rank == 0)

    count = len(data["x_test"]) // (40 * processes) * 40  # of each process: whole batches
    own = slice(rank * count, (rank + 1) * count)
    test_images, test_labels = data["x_test"][..., np.newaxis] / np.float32(255), data["y_test"]
    # over the examples of all processes
    report = model.evaluate(test_images[own], test_labels[own], 40, verbose=0, return_dict=True)
    print(json.dumps({name: report[name] for name in ("loss", "accuracy")}))


if __name__ == "__main__":
    main()
