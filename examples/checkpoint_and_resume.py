"""Survive preemption: save on SIGTERM and every N steps, resume to the same weights.

On one machine:  python checkpoint_and_resume.py --checkpoint-dir run1   # kill it, run it again
On two machines, with a folder that both see (NFS, or a bucket: gs://...):

    node-a$ TF_CONFIG='{"cluster": {"worker": ["node-a:12345", "node-b:12345"]},
              "task": {"type": "worker", "index": 0}}' python checkpoint_and_resume.py
    node-b$ TF_CONFIG='{"cluster": {"worker": ["node-a:12345", "node-b:12345"]},
              "task": {"type": "worker", "index": 1}}' python checkpoint_and_resume.py

Slurm and Kubernetes send SIGTERM before they kill. If one worker gets it, all save the same step
and exit with status 75, "try again". On a spot machine, send SIGTERM yourself when the cloud's
metadata address announces the end. After a SIGKILL, the periodic checkpoint is what is left.
Workers listen on ALL interfaces, without a password: use a network that you trust.

TensorFlow's PreemptionCheckpointHandler asks Google Cloud's metadata server, and only about
maintenance. For `fit`: keras.callbacks.BackupAndRestore(folder, save_freq=100).
TensorFlow 2.21, Keras 3.15. Data: FASHION_MNIST=/path/to/file.npz.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

DATA = Path(__file__).parents[1] / "utils/data/bundled/fashion_mnist.npz"
GLOBAL_BATCH_SIZE = 64
TRY_AGAIN = 75  # EX_TEMPFAIL


def make_batches(split: str, batch_size: int, seed: int = 0, limit: int | None = None):
    """Return GLOBAL batches; the order of training depends on `seed` alone."""
    data = np.load(os.environ.get("FASHION_MNIST", DATA))
    images = data[f"x_{split}"][:limit, ..., np.newaxis].astype("float32") / 255
    dataset = tf.data.Dataset.from_tensor_slices((images, data[f"y_{split}"][:limit]))
    if split == "train":  # A seed, so that all workers cut their parts of one order.
        dataset = dataset.shuffle(len(images), seed=seed, reshuffle_each_iteration=False)
    dataset = dataset.batch(batch_size, drop_remainder=split == "train")
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return dataset.with_options(options)


def build_model() -> keras.Model:
    layers = [keras.Input((28, 28, 1)), keras.layers.Conv2D(32, 3, activation="relu")]
    layers += [keras.layers.MaxPooling2D(), keras.layers.Flatten(), keras.layers.Dense(10)]
    return keras.Sequential(layers)


def latest_intact_checkpoint(folder: str) -> str | None:
    """Return the newest checkpoint with every value readable, None if there is none.

    A full disk or a copy cut short can leave half a data file under a good index. Each value is
    stored with a checksum, so reading all of them finds the damage.
    """
    paths = [path.removesuffix(".index") for path in tf.io.gfile.glob(f"{folder}/ckpt-*.index")]
    for path in sorted(paths, key=lambda path: int(path.rsplit("-", 1)[1]), reverse=True):
        try:
            reader = tf.train.load_checkpoint(path)
            for name in reader.get_variable_to_shape_map():
                reader.get_tensor(name)
            return path
        except (tf.errors.OpError, LookupError, RuntimeError, ValueError) as error:
            print(f"{path} is damaged ({error}): trying the one before it", flush=True)
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint-dir", default="checkpoints", help="seen by all workers")
    parser.add_argument("--checkpoint-every", type=int, default=50, help="steps")
    parser.add_argument("--epochs", type=int, default=2, help="in all, those before included")
    parser.add_argument("--max-examples", type=int, help="train on the first N images")
    parser.add_argument("--save", help="the chief writes the trained model to this .keras file")
    options = parser.parse_args()

    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # one worker without TF_CONFIG
    is_chief = strategy.cluster_resolver.task_id in (None, 0)  # no "chief" in this TF_CONFIG
    terminated = []  # filled by SIGTERM; a step under way is finished first
    signal.signal(signal.SIGTERM, lambda *_: terminated.append(True))
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = build_model()
        optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
        optimizer.build(model.trainable_variables)  # before restoring: momentum is state too
        test_loss, accuracy = keras.metrics.Mean(), keras.metrics.SparseCategoricalAccuracy()
    step = tf.Variable(0, dtype=tf.int64)  # outside the scope: a plain one on each worker
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    # Whatever the rest of the run depends on: weights, optimizer, and where the data stand.
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, step=step)
    # All workers save, since that can need all of them; what is not the chief's is thrown away.
    aside = tempfile.TemporaryDirectory()
    folder = options.checkpoint_dir if is_chief else aside.name
    manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=2)
    newest = latest_intact_checkpoint(options.checkpoint_dir)  # the chief's, on every worker
    if newest:
        checkpoint.restore(newest).assert_existing_objects_matched()
        print(f"resumed from {newest}, step {int(step.numpy())}", flush=True)

    def train_replica(images, labels):
        with tf.GradientTape() as tape:
            losses = loss_of(labels, model(images, training=True))
            loss = tf.nn.compute_average_loss(losses, global_batch_size=GLOBAL_BATCH_SIZE)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    def test_replica(images, labels):
        logits = model(images, training=False)
        test_loss.update_state(loss_of(labels, logits))
        accuracy.update_state(labels, logits)

    @tf.function
    def train_step(batch, stop):
        """Train one step; return on how many replicas a worker was told to stop."""
        strategy.run(train_replica, args=batch)
        return strategy.reduce("SUM", strategy.run(lambda: tf.identity(stop)), axis=None)

    @tf.function
    def test_step(batch):
        strategy.run(test_replica, args=batch)

    @tf.function
    def barrier():  # a worker that exits while another still works takes that one down
        strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", 1.0))

    def distribute(batches):
        return strategy.experimental_distribute_dataset(batches)

    steps_per_epoch = int(
        make_batches("train", GLOBAL_BATCH_SIZE, 0, options.max_examples).cardinality()
    )
    while (done := int(step.numpy())) < options.epochs * steps_per_epoch:
        epoch, first = divmod(done, steps_per_epoch)
        batches = make_batches("train", GLOBAL_BATCH_SIZE, epoch, options.max_examples).skip(first)
        for batch in distribute(batches):
            # All workers learn of a SIGTERM to any of them, so that all save the same step.
            stop = train_step(batch, tf.constant(float(bool(terminated)))) > 0
            step.assign_add(1)
            if stop or int(step.numpy()) % options.checkpoint_every == 0:
                manager.save(checkpoint_number=int(step.numpy()))
            if stop:
                print(f"told to stop, saved at step {int(step.numpy())}", flush=True)
                sys.exit(TRY_AGAIN)

    for batch in distribute(make_batches("test", 400)):
        test_step(batch)
    report = {"loss": float(test_loss.result()), "accuracy": float(accuracy.result())}
    if options.save:
        model.save(options.save if is_chief else Path(aside.name, "model.keras"))
    barrier()
    print(json.dumps(report))


if __name__ == "__main__":
    main()
