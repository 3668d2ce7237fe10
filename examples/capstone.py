"""A whole project in one program: segment pictures with a U-Net, on one machine or on several.

On one machine:  python capstone.py --output run1 --epochs 8 --seed 0
On two machines, with a folder that both see (NFS, or a bucket):

    node-a$ TF_CONFIG='{"cluster": {"worker": ["node-a:12345", "node-b:12345"]},
              "task": {"type": "worker", "index": 0}}' python capstone.py --output run1
    node-b$ TF_CONFIG='{"cluster": {"worker": ["node-a:12345", "node-b:12345"]},
              "task": {"type": "worker", "index": 1}}' python capstone.py --output run1

Whatever kills it, start it again with the same words: it continues from run1/checkpoints, to the
same weights as a run that was never killed. Workers listen on ALL interfaces of their machines,
without a password: use a network that you trust.

Data: scenes of 64 x 64 pixels with one to three garments of Fashion-MNIST, drawn once as
TFRecord shards and streamed from there. FASHION_MNIST=/path/to/file.npz names the garments. At the
end run1/report.json holds steps, weights_checksum, and loss, foreground_iou and garments_iou on
scenes that were not trained on; run1/saved_model takes images [batch, 64, 64, 1] in [0, 1] and
gives logits [batch, 64, 64, 11]. TensorFlow 2.21, Keras 3.15.
"""

import argparse
import hashlib
import json
import os
import tempfile
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

DATA = Path(__file__).parents[1] / "utils/data/bundled/fashion_mnist.npz"
GLOBAL_BATCH_SIZE = 32  # scenes of all replicas of all workers together
SIZE, GARMENT, CLASSES = 64, 28, 11  # pixels, pixels, background and ten classes of garments
SHARDS, TEST_SCENES, TEST_BATCH = 8, 200, 40


def draw_scene(images, labels, seed: int, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return picture and mask, uint8 [64, 64]. Both depend on seed and number alone."""
    rng = np.random.default_rng([seed, number])
    picture = rng.integers(0, 24, (SIZE, SIZE), dtype=np.uint8)  # faint noise
    mask = np.zeros((SIZE, SIZE), np.uint8)
    for place in rng.integers(0, len(images), rng.integers(1, 4)):
        top, left = rng.integers(0, SIZE - GARMENT + 1, 2)
        window = np.s_[top : top + GARMENT, left : left + GARMENT]
        covers = images[place] >= 16
        picture[window][covers] = images[place][covers]
        mask[window][covers] = 1 + labels[place]
    return picture, mask


def write_shards(folder: Path, scenes: int) -> None:
    """Draw training and test scenes into `folder`, which appears whole or not at all."""
    if folder.exists():
        return
    data = np.load(os.environ.get("FASHION_MNIST", DATA))
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=folder.parent))
    for split, count, seed in (("train", scenes, 1), ("test", TEST_SCENES, 2)):
        images, labels = data[f"x_{split}"], data[f"y_{split}"]
        for shard, numbers in enumerate(np.array_split(np.arange(count), SHARDS)):
            with tf.io.TFRecordWriter(str(aside / f"{split}-{shard}.tfrecord"), "ZLIB") as writer:
                for number in numbers:  # one at a time: never all of them in memory
                    picture, mask = draw_scene(images, labels, seed, number)
                    writer.write(picture.tobytes() + mask.tobytes())
    aside.rename(folder)


def read_batches(folder: Path, split: str, batch_size: int, seed: int | None = None):
    """Return GLOBAL batches of pictures [batch, 64, 64, 1] and masks [batch, 64, 64].

    The order depends on `seed` alone, so that all workers cut the same batches and a run that
    resumes skips what it has seen.
    """

    def parse(records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        pixels = tf.reshape(tf.io.decode_raw(records, tf.uint8), [-1, 2, SIZE, SIZE])
        masks = tf.cast(pixels[:, 1], tf.int32)
        return tf.cast(pixels[:, 0, ..., tf.newaxis], tf.float32) / 255, masks

    files = sorted(str(path) for path in folder.glob(f"{split}-*.tfrecord"))
    records = tf.data.Dataset.from_tensor_slices(files).interleave(
        lambda file: tf.data.TFRecordDataset(file, "ZLIB"),
        cycle_length=SHARDS,
        num_parallel_calls=2,
        deterministic=True,
    )
    if seed is not None:  # the scenes are random already: a buffer of some is enough
        records = records.shuffle(1_000, seed=seed, reshuffle_each_iteration=False)
    # Batch first, then parse whole batches: several times as fast as parsing one by one.
    batches = records.batch(batch_size, drop_remainder=seed is not None).map(parse, 2).prefetch(2)
    options = tf.data.Options()  # DATA: each worker trains on its part of each global batch
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    options.autotune.enabled = False  # nothing here is left to be tuned
    return batches.with_options(options)


def build_model(widths: tuple[int, ...] = (16, 32, 64, 128)) -> keras.Model:
    """Return a U-Net: down to ever fewer pixels, up again, and across at every size.

    Pictures are scaled to a spread of about 1 first: with smaller numbers it learns more slowly.
    """

    def convolve(x, width):
        for _ in range(2):
            x = keras.layers.Conv2D(
                width, 3, padding="same", activation="elu", kernel_initializer="he_normal"
            )(x)
        return x

    inputs = keras.Input((SIZE, SIZE, 1))
    scaled = keras.layers.Rescaling(4.0, -0.5)(inputs)
    x = keras.layers.Conv2D(widths[0], 2, strides=2)(scaled)  # half the size: a quarter of the work
    across = []
    for width in widths[:-1]:
        across.append(convolve(x, width))
        x = keras.layers.MaxPooling2D()(across[-1])
    x = convolve(x, widths[-1])
    for width, kept in zip(widths[-2::-1], across[::-1]):
        x = keras.layers.Conv2DTranspose(width, 2, strides=2)(x)
        x = convolve(keras.layers.Concatenate()([kept, x]), width)
    x = keras.layers.Conv2DTranspose(widths[0], 2, strides=2, activation="elu")(x)
    # The last layer gets the scene too, sharpened: noise (below 24/255) negative, garments near 1.
    sharp = keras.layers.Activation("tanh")(keras.layers.Rescaling(32.0, -3.0)(inputs))
    x = keras.layers.Concatenate()([sharp, x])
    most = keras.initializers.Constant([4.0] + 10 * [0.0])  # most pixels are background
    return keras.Model(inputs, keras.layers.Conv2D(CLASSES, 1, bias_initializer=most)(x))  # logits


def make_optimizer(steps: int) -> keras.optimizers.Optimizer:
    """Return Adam for a run of `steps`: its rate rises at first, then falls along a cosine.

    The rate follows the optimizer's own count, which is in the checkpoint.
    """
    rise = 1 + steps // 30
    rate = keras.optimizers.schedules.CosineDecay(0.0, steps, warmup_target=2e-3, warmup_steps=rise)
    return keras.optimizers.Adam(rate)


class Job:
    """The contents of a checkpoint, and the steps that change it."""

    def __init__(self, strategy: tf.distribute.Strategy, steps: int) -> None:
        self.strategy = strategy
        with strategy.scope():  # everything that makes variables
            self.model = build_model()
            self.optimizer = make_optimizer(steps)
            self.optimizer.build(self.model.trainable_variables)  # before a checkpoint is restored
        self.step = tf.Variable(0, dtype=tf.int64)  # outside the scope: a plain one on each worker
        parts = {"model": self.model, "optimizer": self.optimizer, "step": self.step}
        self.checkpoint = tf.train.Checkpoint(**parts)  # all that the rest of a run depends on

    def find_losses(self, masks, logits):
        """Return a loss for each scene, [batch]: the mean over its pixels."""
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(masks, logits)  # [batch, 64, 64]
        return tf.reduce_mean(losses, axis=[1, 2])

    def train_replica(self, pictures, masks):
        with tf.GradientTape() as tape:
            logits = self.model(pictures, training=True)
            # Divided by the GLOBAL batch: the optimizer adds up the gradients of all replicas.
            loss = tf.reduce_sum(self.find_losses(masks, logits)) / GLOBAL_BATCH_SIZE
        gradients = tape.gradient(loss, self.model.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables))
        return loss

    def test_replica(self, pictures, masks):
        """Return the sum of losses and how often each true class was taken for each class."""
        logits = self.model(pictures, training=False)
        found = tf.reshape(tf.argmax(logits, axis=-1), [-1])
        confusion = tf.math.confusion_matrix(tf.reshape(masks, [-1]), found, CLASSES)
        return tf.reduce_sum(self.find_losses(masks, logits)), confusion

    @tf.function
    def train_step(self, batch):
        losses = self.strategy.run(self.train_replica, args=batch)
        return self.strategy.reduce("SUM", losses, axis=None)

    @tf.function(reduce_retracing=True)
    def test_step(self, batch):
        losses, confusion = self.strategy.run(self.test_replica, args=batch)
        return (
            self.strategy.reduce("SUM", losses, axis=None),
            self.strategy.reduce("SUM", confusion, axis=None),
        )

    @tf.function
    def barrier(self):
        self.strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", 1.0))


def score(confusion: np.ndarray) -> dict[str, float]:
    """Return intersection over union: all garments as one class, and the mean of their classes."""
    both = np.diagonal(confusion)
    either = confusion.sum(axis=0) + confusion.sum(axis=1) - both
    classes = both[1:] / np.maximum(either[1:], 1)
    foreground = confusion[1:, 1:].sum() / (confusion.sum() - confusion[0, 0])
    return {"foreground_iou": float(foreground), "garments_iou": float(classes.mean())}


def evaluate(job: Job, batches) -> dict[str, float]:
    loss, confusion = 0.0, np.zeros((CLASSES, CLASSES), np.int64)
    for batch in job.strategy.experimental_distribute_dataset(batches):
        batch_loss, batch_confusion = job.test_step(batch)
        loss, confusion = loss + float(batch_loss), confusion + batch_confusion.numpy()
    return {"loss": loss / TEST_SCENES, **score(confusion)}


def export(model: keras.Model, folder: Path) -> str:
    """Write a plain copy of the model as a SavedModel. Return a checksum of its weights."""
    plain = build_model()
    plain.set_weights(model.get_weights())
    plain.export(folder, verbose=False)
    numbers = b"".join(weight.astype("<f8").tobytes() for weight in plain.get_weights())
    return hashlib.sha256(numbers).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="folder, seen by all workers")
    parser.add_argument("--epochs", type=int, default=8, help="in all, those before included")
    parser.add_argument("--seed", type=int, default=0, help="of first weights and of the order")
    parser.add_argument("--steps", type=int, default=10**9, help="stop after N steps, in all")
    parser.add_argument(
        "--checkpoint-every", type=int, default=10, help="steps between checkpoints"
    )
    parser.add_argument("--scenes", type=int, default=6_000, help="to train on")
    options = parser.parse_args()

    # First of all: "Collective ops must be configured at program startup". Waits for all workers.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # without TF_CONFIG: this machine alone
    is_chief = strategy.cluster_resolver.task_id in (None, 0)  # no "chief" in this TF_CONFIG
    keras.utils.set_random_seed(options.seed)  # the same first weights on every worker
    steps_per_epoch = options.scenes // GLOBAL_BATCH_SIZE
    last = min(options.steps, options.epochs * steps_per_epoch)
    job = Job(strategy, last)
    shards = options.output / f"scenes-{options.scenes}"
    if is_chief:
        write_shards(shards, options.scenes)
    job.barrier()  # nobody reads before all is written

    # All workers save, since that can need all of them; what is not the chief's is thrown away.
    aside = tempfile.TemporaryDirectory()
    checkpoints = options.output / "checkpoints"
    folder = str(checkpoints if is_chief else aside.name)
    manager = tf.train.CheckpointManager(job.checkpoint, folder, max_to_keep=2)
    if newest := tf.train.latest_checkpoint(str(checkpoints)):  # the chief's, on every worker
        job.checkpoint.restore(newest).assert_existing_objects_matched()
        print(f"resumed from step {int(job.step.numpy())}", flush=True)

    first, begun = int(job.step.numpy()), time.perf_counter()

    def read_epoch(epoch: int) -> tf.data.Dataset:  # each in an order of its own
        seed = options.seed * 1_000 + epoch
        return read_batches(shards, "train", GLOBAL_BATCH_SIZE, seed)

    # One iterator for all epochs: one that ends waits until tf.data's tuning thread wakes up, and
    # that sleeps for longer and longer. With an iterator for each epoch, all stand still after it.
    batches = read_epoch(first // steps_per_epoch)
    for epoch in range(first // steps_per_epoch + 1, -(-last // steps_per_epoch)):
        batches = batches.concatenate(read_epoch(epoch))
    batches = batches.skip(first % steps_per_epoch).take(last - first)
    for batch in strategy.experimental_distribute_dataset(batches):
        loss = float(job.train_step(batch))
        step = int(job.step.assign_add(1).numpy())
        if step % options.checkpoint_every == 0 or step == last:
            manager.save(checkpoint_number=step)
        if is_chief and (step % 5 == 0 or step == last):
            print(f"step {step} of {last}: loss {loss:.4f}", flush=True)
    seconds = time.perf_counter() - begun

    tested = evaluate(job, read_batches(shards, "test", TEST_BATCH))
    if is_chief:
        report = {"steps": int(job.step.numpy()), **tested}
        report["weights_checksum"] = export(job.model, options.output / "saved_model")
        report["step_seconds"] = seconds / (last - first) if last > first else None
        (options.output / "report.json").write_text(json.dumps(report, indent=1))
        print(json.dumps(report))
    job.barrier()  # a worker that exits while another still works takes that one down


if __name__ == "__main__":
    main()
