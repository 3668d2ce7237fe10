"""The tf.data service: input pipelines that run on machines of their own, for several trainers.

On one machine:  python data_service.py     # all roles: a dispatcher, two workers, two trainers
On two machines, one program in three roles; the first two serve until Ctrl-C:

    node-a$ python data_service.py dispatcher node-a:5050
    node-b$ python data_service.py worker node-a:5050 node-b:5051
    node-a$ python data_service.py trainer node-a:5050
    node-b$ python data_service.py trainer node-a:5050

The servers listen on ALL interfaces, unencrypted and without a password, and run the pipeline
that any client sends: use a network that you trust. TensorFlow 2.21, Keras 3.15. The data, read
by the trainers: FASHION_MNIST=/path/to/file.npz. Each trainer ends with a line of JSON.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

DATA = Path(__file__).parents[1] / "utils/data/bundled/fashion_mnist.npz"
service = tf.data.experimental.service


def load_images(split: str, limit: int | None = None):
    data = np.load(os.environ.get("FASHION_MNIST", DATA))
    return data[f"x_{split}"][:limit, ..., np.newaxis], data[f"y_{split}"][:limit]


def make_train_batches(limit: int | None = None) -> tf.data.Dataset:
    """Return the pipeline. It runs on the service's workers, which get it as a graph.

    So it must be plain TensorFlow (py_function and Python generators stay behind), and arrays
    travel inside it. Large data belongs in files that the workers see: TFRecordDataset(paths).
    """
    images, labels = load_images("train", limit)
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(len(images), seed=0)
    return dataset.batch(64).map(lambda x, y: (tf.cast(x, "float32") / 255, y))


def build_model() -> keras.Model:
    layers = [keras.Input((28, 28, 1)), keras.layers.Conv2D(32, 3, activation="relu")]
    layers += [keras.layers.MaxPooling2D(), keras.layers.Flatten(), keras.layers.Dense(10)]
    return keras.Sequential(layers)


def train(dispatcher: str, options: argparse.Namespace) -> None:
    keras.utils.set_random_seed(0)
    # DYNAMIC deals out the examples: each is processed once, by whichever worker is free.
    # OFF makes each worker process all of them: two workers, and every example comes twice.
    # Trainers with the same job_name share one pass, first come, first served: each example
    # goes to one of them. Without a job_name each trainer has a pass of its own.
    # The workers of one synchronous strategy need equally many batches each: dataset.repeat(),
    # and consumer_index= and num_consumers= in distribute().
    shared = options.sharding == "dynamic"
    served = service.distribute(
        processing_mode=service.ShardingPolicy[options.sharding.upper()],
        service=f"grpc://{dispatcher}",
        job_name="one-pass" if shared else None,
    )
    # Only what stands before `apply` runs on the service. Fetch ahead while a step runs.
    batches = make_train_batches(options.max_examples).apply(served).prefetch(4)

    model = build_model()
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), loss_of, metrics=["accuracy"])
    examples = 0
    for images, labels in batches:
        model.train_on_batch(images, labels)
        examples += len(labels)
    images, labels = load_images("test")
    loss, accuracy = model.evaluate(images.astype("float32") / 255, labels, verbose=0)
    if options.save:
        model.save(options.save)
    print(json.dumps({"loss": loss, "accuracy": accuracy, "examples": examples}))


def start_dispatcher(port: int) -> service.DispatchServer:
    return service.DispatchServer(service.DispatcherConfig(port=port))  # port 0: a free one


def start_worker(dispatcher: str, address: str | None, port: int) -> service.WorkerServer:
    # `worker_address` is where trainers look for it. The default, localhost, is of no use to
    # another machine.
    return service.WorkerServer(
        service.WorkerConfig(dispatcher_address=dispatcher, worker_address=address, port=port)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("role", nargs="?", choices=["dispatcher", "worker", "trainer"])
    parser.add_argument("addresses", nargs="*", help="of the dispatcher, then of this worker")
    parser.add_argument("--sharding", default="dynamic", choices=["dynamic", "off"])
    parser.add_argument("--workers", type=int, default=2, help="without a role: how many")
    parser.add_argument("--max-examples", type=int, help="train on the first N images")
    parser.add_argument("--save", help="the trainer writes its model to this .keras file")
    options = parser.parse_args()
    ports = [int(address.rsplit(":", 1)[1]) for address in options.addresses]
    if options.role == "trainer":
        train(options.addresses[0], options)
    elif options.role in ("dispatcher", "worker"):
        if options.role == "dispatcher":
            server = start_dispatcher(ports[0])  # noqa: F841 (a server ends with its last name)
        else:
            server = start_worker(*options.addresses, ports[1])  # noqa: F841
        signal.pause()  # not server.join(), which Ctrl-C does not end
    else:
        dispatcher = start_dispatcher(0)
        address = dispatcher.target.removeprefix("grpc://")
        workers = [start_worker(address, None, 0) for _ in range(options.workers)]
        command = [sys.executable, __file__, "trainer", address, *sys.argv[1:]]
        trainers = [subprocess.Popen(command) for _ in range(2)]
        statuses = [trainer.wait() for trainer in trainers]
        del workers, dispatcher
        sys.exit(max(statuses))


if __name__ == "__main__":
    main()
