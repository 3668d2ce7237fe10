# ruff: noqa: E501
"""Lab 15: plans and measures in several styles, whole programs, SavedModels exported in many ways.

The programs train a U-Net that is far too narrow, to be quick. The models of `model` are made by
tests/capstone_models.py, out of the one that solutions/ hands in.
"""

from pathlib import Path

from distlab.authoring import sources

ROOT = Path(__file__).parents[2]


def one(name, arguments, body):
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    return f"import math\nimport numpy as np\ndef {name}({arguments}):\n{lines}"


def plan(step, images="g * b / step"):
    return one("predict_step", "r, b, g", f"step = {step}\nreturn step, {images}")


RING = "2 * (g - 1) / g * 4 * 31_030_658 / 15e9"


def iou(body):
    return one(
        "measure_iou",
        "masks, predicted",
        f"m, p = np.asarray(masks), np.asarray(predicted)\n{body}",
    )


SETS = """
spots = list(zip(m.ravel().tolist(), p.ravel().tolist()))
both, either = {}, {}
for right, said in spots:
    for kind in {right, said}:
        either[kind] = either.get(kind, 0) + 1
        both[kind] = both.get(kind, 0) + (right == said)
kinds = [both[k] / either[k] for k in either if k]
seen = [bool(a) + bool(b) for a, b in spots]
return seen.count(2) / (len(seen) - seen.count(0)), sum(kinds) / len(kinds)""".strip()
TABLE = """
counts = np.zeros((11, 11))
np.add.at(counts, (m.ravel(), p.ravel()), 1)
both = np.diag(counts)
either = counts.sum(0) + counts.sum(1) - both
shown = either[1:] > 0
return counts[1:, 1:].sum() / (counts.sum() - counts[0, 0]), (both[1:][shown] / either[1:][shown]).mean()""".strip()
ONE_HOT = """
a, b = (np.eye(11)[part.ravel()] for part in (m, p))
either = np.maximum(a, b).sum(0)
kinds = np.divide((a * b).sum(0), either, out=np.full(11, np.nan), where=either > 0)
one, other = 1 - a[:, 0], 1 - b[:, 0]
return one @ other / (one.sum() + other.sum() - one @ other), np.nanmean(kinds[1:])""".strip()
LOOPED = """
found = []
for k in range(1, 11):
    both, either = np.sum((m == k) & (p == k)), np.sum((m == k) | (p == k))
    if either:
        found.append(both / either)
return [np.sum((m > 0) & (p > 0)) / np.sum((m > 0) | (p > 0)), float(np.mean(found))]""".strip()
BINS = """
pairs = np.bincount(11 * m.ravel() + p.ravel(), minlength=121).reshape(11, 11)
score = lambda k: pairs[k, k] / (pairs[k].sum() + pairs[:, k].sum() - pairs[k, k])
there = [k for k in range(1, 11) if pairs[k].sum() + pairs[:, k].sum()]
return pairs[1:, 1:].sum() / (pairs.sum() - pairs[0, 0]), sum(map(score, there)) / len(there)""".strip()
TENSORS = """
import tensorflow as tf
table = tf.cast(tf.math.confusion_matrix(m.ravel(), p.ravel(), 11), tf.float64)
both = tf.linalg.diag_part(table)
either = tf.reduce_sum(table, 0) + tf.reduce_sum(table, 1) - both
kinds = tf.boolean_mask(both[1:] / tf.maximum(either[1:], 1), either[1:] > 0)
return tf.reduce_sum(table[1:, 1:]) / (tf.reduce_sum(table) - table[0, 0]), tf.reduce_mean(kinds)""".strip()
PLACES = """
def find(values, test):
    return {k for k, value in enumerate(values.ravel().tolist()) if test(value)}
def divide(test):
    one, other = find(m, test), find(p, test)
    return len(one & other) / len(one | other) if one | other else None
found = [divide(lambda v, k=k: v == k) for k in range(1, 11)]
found = [iou for iou in found if iou is not None]
return divide(lambda v: v > 0), sum(found) / len(found)""".strip()
JACCARD = """
def jaccard(a, b):
    return 1 - (a ^ b).sum() / max((a | b).sum(), 1)
kinds = set(m.ravel().tolist()) | set(p.ravel().tolist())
return jaccard(m != 0, p != 0), np.mean([jaccard(m == k, p == k) for k in kinds - {0}])""".strip()

# ---- whole programs, from the lab's own


def read_solution():
    (target,) = sources.choose_targets(sources.find_targets(ROOT), ["lab15"])
    cells = sources.read_source(target).cells
    text = next(c.source for c in cells if c.source.startswith("%%writefile capstone.py"))
    text = "\n".join(line for line in text.split("\n") if not line.startswith("### "))
    return change(
        text, ("widths=(16, 32, 64, 128)", "widths=(4, 8)"), ("Adam(1.5e-3)", "Adam(1e-2)")
    )


def change(text, *pairs):
    for old, new in pairs:
        assert text.count(old) == 1, (text.count(old), old)
        text = text.replace(old, new)
    return text


PROGRAM = read_solution()
_MAKE = PROGRAM[PROGRAM.index("def make_part") : PROGRAM.index("def build_unet")]
_MAIN = PROGRAM[PROGRAM.index("def main") : PROGRAM.index('if __name__ == "__main__"')]
# a data set of step numbers; NumPy draws the rest
STEP_NUMBERS = change(
    PROGRAM,
    (
        _MAKE,
        """def make_part(shards, seed, first, last, replica_batch):
    def draw(step):
        drawn = []
        for number in sorted(shards):
            images, masks = shards[number]
            epoch, place = divmod(int(step), len(images) // 8)
            order = np.random.RandomState([seed, number, epoch]).permutation(len(images))
            drawn += [(images[k], masks[k]) for k in order[8 * place :][:8]]
        images, masks = zip(*drawn)
        return np.stack(images)[..., None] / np.float32(255), np.stack(masks).astype("int32")

    def parse(step):
        images, masks = tf.numpy_function(draw, [step], (tf.float32, tf.int32))
        size = replica_batch
        return tf.ensure_shape(images, (size, 64, 64, 1)), tf.ensure_shape(masks, (size, 64, 64))

    return tf.data.Dataset.range(first, last).map(parse).prefetch(1)


""",
    ),
)
# each shard is shuffled by tf.data, the same order in every epoch; what was done is skipped
IN_MEMORY = change(
    PROGRAM,
    (
        _MAKE,
        """def make_part(shards, seed, first, last, replica_batch):
    def read(number):
        images, masks = shards[number]
        scenes = tf.data.Dataset.from_tensor_slices((images[..., None], masks))
        scenes = scenes.shuffle(len(images), 10 * seed + number, reshuffle_each_iteration=False)
        return scenes.repeat().batch(8, drop_remainder=True).take(last).skip(first)

    def join(*parts):
        images, masks = zip(*parts)
        return tf.cast(tf.concat(images, 0), tf.float32) / 255.0, tf.concat(masks, 0)

    joined = tf.data.Dataset.zip(tuple(read(number) for number in shards)).map(join)
    return joined.unbatch().batch(replica_batch)


""",
    ),
)
# the sum over replicas and the update by hand, a model of tf.Modules' kind, files of NumPy's
BY_HAND = PROGRAM.replace(
    _MAIN,
    """def main():
    options = read_options()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    chief = not strategy.cluster_resolver.task_id
    keras.utils.set_random_seed(options.seed)
    with strategy.scope():
        model = build_unet()
        weights = model.trainable_variables
        speeds = [tf.Variable(tf.zeros_like(weight)) for weight in weights]
    folder = options.output / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    step, loss = 0, 0.0
    for path in sorted(folder.glob("*.npz"), key=lambda path: int(path.stem)):
        step = int(path.stem)
    if step:
        with np.load(folder / f"{step}.npz") as kept:
            loss = float(kept["loss"])
            for number, variable in enumerate([*weights, *speeds]):
                variable.assign(kept[f"v{number}"])

    def train_replica(images, masks):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                tf.cast(masks, tf.int32), model(images)
            )
            loss = tf.reduce_sum(losses) / (GLOBAL_BATCH * 64 * 64)
        slopes = tape.gradient(loss, weights)
        slopes = tf.distribute.get_replica_context().all_reduce("SUM", slopes)
        for weight, speed, slope in zip(weights, speeds, slopes):
            speed.assign(0.9 * speed + slope)
            weight.assign_sub(0.05 * speed)
        return loss

    @tf.function
    def train_step(batch):
        return strategy.reduce("SUM", strategy.run(train_replica, args=batch), axis=None)

    workers = max(len(strategy.cluster_resolver.cluster_spec().as_dict().get("worker", [])), 1)
    shards = read_shards(options.data, strategy.cluster_resolver.task_id or 0, workers)
    total = min(options.epochs * len(next(iter(shards.values()))[0]) // 8, options.steps or 10**9)
    batches = strategy.distribute_datasets_from_function(
        lambda context: make_part(shards, options.seed, step, total, 8 * len(shards))
    )
    for batch in batches:
        loss = float(train_step(batch))
        step += 1
        if step % SAVE_EVERY == 0 and chief:
            numbers = {f"v{k}": v.numpy() for k, v in enumerate([*weights, *speeds])}
            np.savez(folder / "part.tmp.npz", loss=loss, **numbers)
            (folder / "part.tmp.npz").rename(folder / f"{step}.npz")
    if chief:
        plain = build_unet()
        plain.set_weights(model.get_weights())
        module = tf.Module()
        module.model = plain
        spec = tf.TensorSpec([None, 64, 64, 1], tf.float32, name="scene")
        serve = tf.function(lambda scene: {"scores": plain(scene)})
        tf.saved_model.save(
            module, str(options.output / "saved_model"),
            signatures={"serving_default": serve.get_concrete_function(spec)},
        )
        total = sum(abs(w.astype(float)).sum() for w in plain.get_weights())
        with open(options.output / "report.json", "w") as file:
            json.dump({"steps": step, "loss": loss, "weights_checksum": float(total)}, file)
    strategy.reduce("SUM", tf.constant(1.0), axis=None)


""",
).replace('glob("*.npz")', 'glob("[0-9]*.npz")')
# plain SGD has no state: the weights and the number in the file's name are all there is to keep
WEIGHT_FILES = change(
    PROGRAM,
    ("keras.optimizers.Adam(1e-2)", "keras.optimizers.SGD(0.4)"),
    (
        "    if latest := tf.train.latest_checkpoint(folder):\n        state.restore(latest)\n",
        '    kept = sorted(int(path.name.split(".")[0]) for path in folder.glob("*.weights.h5"))\n'
        '    if kept:\n        model.load_weights(folder / f"{kept[-1]}.weights.h5")\n        step.assign(kept[-1])\n',
    ),
    (
        "    aside = folder if chief else tempfile.mkdtemp()  # all save, the chief's files count\n",
        "    folder.mkdir(parents=True, exist_ok=True)\n",
    ),
    ("    manager = tf.train.CheckpointManager(state, aside, max_to_keep=2)\n", ""),
    (
        "            manager.save(checkpoint_number=int(step))\n",
        "            if chief:\n                part = folder.parent / 'part.weights.h5'\n                model.save_weights(part)\n                part.rename(folder / f'{int(step)}.weights.h5')\n",
    ),
)
# one class, one epoch at a time, a checkpoint that reads itself
AS_A_CLASS = change(
    PROGRAM,
    ("    if latest := tf.train.latest_checkpoint(folder):\n        state.restore(latest)\n", ""),
    (
        "    aside = folder if chief else tempfile.mkdtemp()  # all save, the chief's files count\n    manager = tf.train.CheckpointManager(state, aside, max_to_keep=2)\n",
        "    tf.train.CheckpointManager(state, folder, max_to_keep=None).restore_or_initialize()\n    aside = folder if chief else tempfile.mkdtemp()\n    manager = tf.train.CheckpointManager(state, aside, max_to_keep=1)\n",
    ),
    (
        "            per_scene = tf.reduce_mean(losses, axis=(1, 2))\n            loss = tf.nn.compute_average_loss(per_scene, global_batch_size=GLOBAL_BATCH)\n",
        "            loss = tf.nn.compute_average_loss(losses, global_batch_size=GLOBAL_BATCH) / (64.0 * 64.0)\n",
    ),
    (
        '        plain.export(options.output / "saved_model", verbose=False)\n',
        '        tf.saved_model.save(plain, str(options.output / "saved_model"))\n',
    ),
)
# everything in the main part, a dataset of step numbers that is cut into shares by tf.data
DATASET_OF_STEPS = """%%writefile capstone.py
import argparse
import json
import os
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
from keras import layers

GLOBAL_BATCH, SAVE_EVERY, CLASSES = 32, 10, 11


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=None)
    return parser.parse_args()


def unet(seed):
    keras.utils.set_random_seed(seed)
    image = keras.Input((64, 64, 1))
    skips, x = [], image
    for width in (4, 8):
        x = layers.Conv2D(width, 3, padding="same", activation="relu")(x)
        skips.append(x)
        x = layers.MaxPooling2D()(x)
    x = layers.Conv2D(16, 3, padding="same", activation="relu")(x)
    for width, skip in zip((8, 4), reversed(skips)):
        x = layers.Conv2DTranspose(width, 2, strides=2)(x)
        x = layers.Concatenate()([x, skip])
        x = layers.Conv2D(width, 3, padding="same", activation="relu")(x)
    return keras.Model(image, layers.Conv2D(CLASSES, 1)(x))


def make_dataset(paths, seed, first, last):
    def read(path):
        number = int(path[-5])
        images, masks = (np.load(path)[name] for name in ("images", "masks"))

        def draw(step):
            epoch, place = divmod(int(step), len(images) // 8)
            order = np.random.RandomState([seed, epoch, number]).permutation(len(images))
            chosen = order[8 * place : 8 * place + 8]
            return (images[chosen][..., None] / 255).astype("float32"), masks[chosen].astype("int32")

        def load(step):
            x, y = tf.numpy_function(draw, [step], (tf.float32, tf.int32))
            return tf.ensure_shape(x, [8, 64, 64, 1]), tf.ensure_shape(y, [8, 64, 64])

        return tf.data.Dataset.range(first, last).map(load)

    def join(*parts):
        return tuple(tf.concat(part, axis=0) for part in zip(*parts))

    return tf.data.Dataset.zip(*map(read, paths)).map(join).prefetch(1)


if __name__ == "__main__":
    args = parse_arguments()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    resolver = strategy.cluster_resolver
    is_chief = not resolver.task_id
    scratch = tempfile.mkdtemp()
    paths = [os.path.join(args.data, f"shard-{k}.npz") for k in range(4)]
    paths = [path for path in paths if os.path.exists(path)]
    total = args.epochs * (len(np.load(paths[0])["masks"]) // 8)
    if args.steps is not None:
        total = min(total, args.steps)

    with strategy.scope():
        model = unet(args.seed)
        optimizer = keras.optimizers.Adam(1e-2)
        optimizer.build(model.trainable_variables)
        step = tf.Variable(0, dtype=tf.int64, trainable=False)
        loss_value = tf.Variable(0.0, trainable=False)
        checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, step=step, loss=loss_value)

    shared = os.path.join(args.output, "checkpoints")
    folder = shared if is_chief else os.path.join(scratch, "checkpoints")
    manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=3)
    latest = tf.train.latest_checkpoint(shared)
    if latest:
        checkpoint.restore(latest)
        print("restored", latest)

    @tf.function
    def train_step(x, y):
        def replica_fn(x, y):
            with tf.GradientTape() as tape:
                logits = model(x, training=True)
                pixel_losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
                loss = tf.reduce_sum(tf.reduce_mean(pixel_losses, axis=[1, 2])) / GLOBAL_BATCH
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
            return loss

        per_replica = strategy.run(replica_fn, args=(x, y))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica, axis=None)

    first = int(step.numpy())
    if first < total:
        make_part = lambda context: make_dataset(paths, args.seed, first, total)
        for x, y in strategy.distribute_datasets_from_function(make_part):
            loss_value.assign(train_step(x, y))
            step.assign_add(1)
            done = int(step.numpy())
            if done % SAVE_EVERY == 0:
                manager.save(checkpoint_number=done)

    target = os.path.join(args.output if is_chief else scratch, "saved_model")
    model.export(target, verbose=False)
    if is_chief:
        checksum = float(sum(np.abs(w.astype(np.float64)).sum() for w in model.get_weights()))
        with open(os.path.join(args.output, "report.json"), "w") as f:
            json.dump({"steps": int(step.numpy()), "loss": float(loss_value.numpy()), "weights_checksum": checksum}, f)

    # barrier: nobody leaves before worker 0 has written everything
    @tf.function
    def barrier():
        return strategy.reduce("SUM", strategy.run(lambda: tf.constant(1.0)), axis=None)

    barrier()
"""
# no Keras: a tf.Module, convolutions and momentum by hand, each worker's share drawn outside tf.data
MODULE = r'''%%writefile capstone.py
"""Garments, with tf.Module and momentum by hand."""
from __future__ import annotations

import argparse
import json
import logging
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

GLOBAL_BATCH, SAVE_EVERY, CLASSES = 32, 10, 11
log = logging.getLogger("capstone")


@dataclass
class Options:
    data: Path
    output: Path
    epochs: int
    seed: int
    steps: int | None = None

    @classmethod
    def read(cls):
        parser = argparse.ArgumentParser(description=__doc__)
        parser.add_argument("--data", type=Path, required=True)
        parser.add_argument("--output", type=Path, required=True)
        parser.add_argument("--epochs", type=int, required=True)
        parser.add_argument("--seed", type=int, required=True)
        parser.add_argument("--steps", type=int)
        return cls(**vars(parser.parse_args()))


class Net(tf.Module):
    WIDTHS = (12, 24, 48)

    def __init__(self, seed):
        super().__init__(name="net")
        rng = np.random.default_rng(seed)

        def kernel(*shape):
            scale = np.sqrt(2 / np.prod(shape[:3]))
            return tf.Variable(rng.normal(0, scale, shape).astype(np.float32))

        inputs = (1, *self.WIDTHS[:-1])
        self.down = [kernel(3, 3, a, b) for a, b in zip(inputs, self.WIDTHS)]
        self.down_bias = [tf.Variable(tf.zeros(b)) for b in self.WIDTHS]
        self.up = [kernel(3, 3, 48 + 24, 24), kernel(3, 3, 24 + 12, 12)]
        self.up_bias = [tf.Variable(tf.zeros(24)), tf.Variable(tf.zeros(12))]
        self.head = kernel(3, 3, 13, CLASSES)
        self.head_bias = tf.Variable(tf.zeros(CLASSES))

    @tf.function(input_signature=[tf.TensorSpec([None, 64, 64, 1], tf.float32)])
    def serve(self, images):
        return {"logits": self(images)}

    def __call__(self, images):
        x, seen = images, [images]
        for w, b in zip(self.down, self.down_bias):
            x = tf.nn.relu(tf.nn.conv2d(x, w, strides=2, padding="SAME") + b)
            seen.append(x)
        for w, b, skip in zip(self.up, self.up_bias, (seen[2], seen[1])):
            x = tf.repeat(tf.repeat(x, 2, axis=1), 2, axis=2)
            x = tf.nn.relu(tf.nn.conv2d(tf.concat([x, skip], -1), w, 1, "SAME") + b)
        x = tf.repeat(tf.repeat(x, 2, axis=1), 2, axis=2)
        return tf.nn.conv2d(tf.concat([x, images], -1), self.head, 1, "SAME") + self.head_bias


class Program:
    def __init__(self, options: Options):
        self.options = options
        self.strategy = tf.distribute.MultiWorkerMirroredStrategy()
        self.index = self.strategy.cluster_resolver.task_id or 0
        self.workers = self.strategy.num_replicas_in_sync
        with self.strategy.scope():
            self.net = Net(options.seed)
            self.velocity = [tf.Variable(tf.zeros_like(v), trainable=False) for v in self.net.variables]
            self.step = tf.Variable(0, trainable=False, dtype=tf.int64)
            self.last_loss = tf.Variable(float("nan"), trainable=False)
        self.checkpoint = tf.train.Checkpoint(net=self.net, velocity=self.velocity, step=self.step, last_loss=self.last_loss)
        self.shards = {k: dict(np.load(options.data / f"shard-{k}.npz")) for k in range(self.index, 4, self.workers)}
        self.epoch_steps = min(len(shard["masks"]) for shard in self.shards.values()) // 8
        whole = options.epochs * self.epoch_steps
        self.total = whole if options.steps is None else min(whole, options.steps)

    def my_part(self, step: int):
        epoch, place = divmod(step, self.epoch_steps)
        images, masks = [], []
        for k, shard in self.shards.items():
            places = tf.range(len(shard["masks"]))
            order = tf.random.experimental.stateless_shuffle(places, seed=[self.options.seed, 10 * epoch + k])
            chosen = order[8 * place : 8 * place + 8].numpy()
            images.append(shard["images"][chosen])
            masks.append(shard["masks"][chosen])
        images = np.concatenate(images)[..., None] / np.float32(255)
        return tf.constant(images, tf.float32), tf.constant(np.concatenate(masks), tf.int64)

    def replica_step(self, images, masks):
        with tf.GradientTape() as tape:
            log_p = tf.nn.log_softmax(self.net(images))
            picked = tf.gather(log_p, masks, batch_dims=3)
            loss = -tf.reduce_sum(picked) / (GLOBAL_BATCH * 64 * 64)
        variables = list(self.net.trainable_variables)
        gradients = tape.gradient(loss, variables)
        loss, *gradients = tf.distribute.get_replica_context().all_reduce("sum", [loss, *gradients])
        for v, m, g in zip(variables, self.velocity, gradients):
            m.assign(0.9 * m + g)
            v.assign_sub(0.05 * m)
        return loss

    @tf.function
    def train_step(self, images, masks):
        return self.strategy.run(self.replica_step, args=(images, masks))

    @tf.function
    def wait_for_all(self):
        def fn():
            return tf.distribute.get_replica_context().all_reduce("sum", tf.ones([]))

        return self.strategy.run(fn)

    def go(self):
        shared = self.options.output / "checkpoints"
        scratch = Path(tempfile.mkdtemp(prefix=f"worker{self.index}-"))
        chief = self.index == 0
        if found := sorted(int(path.stem.split("-")[1]) for path in shared.glob("ckpt-*.index")):
            self.checkpoint.read(str(shared / f"ckpt-{found[-1]}")).assert_existing_objects_matched()
            log.warning("going on from %s", found[-1])
        while (done := int(self.step.numpy())) < self.total:
            loss = self.train_step(*self.my_part(done))
            self.last_loss.assign(loss)
            self.step.assign_add(1)
            if (done + 1) % SAVE_EVERY == 0:
                self.checkpoint.write(str((shared if chief else scratch) / f"ckpt-{done + 1}"))
        tf.saved_model.save(
            self.net,
            str((self.options.output if chief else scratch) / "saved_model"),
            signatures={"serving_default": self.net.serve},
        )
        if chief:
            report = {
                "steps": int(self.step.numpy()),
                "loss": self.last_loss.numpy().item(),
                "weights_checksum": sum(float(tf.reduce_sum(tf.abs(v))) for v in self.net.trainable_variables),
            }
            (self.options.output / "report.json").write_text(json.dumps(report, indent=2) + "\n")
        self.wait_for_all()
        shutil.rmtree(scratch, ignore_errors=True)


def main():
    Program(Options.read()).go()


if __name__ == "__main__":
    main()
'''
IGNORED = (
    (
        "tf.distribute.MultiWorkerMirroredStrategy()  # reads TF_CONFIG; before any operation\n    chief = strategy.cluster_resolver.task_id in (None, 0)",
        'tf.distribute.OneDeviceStrategy("/cpu:0")\n    config = json.loads(__import__("os").environ.get("TF_CONFIG", "{}"))\n    rank = config.get("task", {}).get("index", 0)\n    chief = rank == 0',
    ),
    (
        '    resolver = strategy.cluster_resolver\n    workers = len(resolver.cluster_spec().as_dict().get("worker", [])) or 1\n    shards = read_shards(options.data, resolver.task_id or 0, workers)\n',
        '    workers = len(config.get("cluster", {"worker": [0]})["worker"])\n    shards = read_shards(options.data, rank, workers)\n',
    ),
    ("context.get_per_replica_batch_size(GLOBAL_BATCH)", "GLOBAL_BATCH // workers"),
)


def model(kind):
    return f"""from capstone_models import make_model
def trained_model():
    return make_model({kind!r})
"""


RIGHT = {
    "plan": [
        plan(f"b / r + {RING}"),
        plan("b / r + 2 * 31_030_658 * 4 * (1 - 1 / g) / 15e9"),
        plan("sum([b / r] + [31_030_658 * 4 / g / 15e9] * (2 * (g - 1)))"),
        plan(f"math.fsum((b / r, {RING}))", "1 / (step / (b * g))"),
        plan(f"np.float64(b) / r + {RING}", "np.multiply(g, b) / step"),
        plan("(15e9 * b * g + 8 * r * (g - 1) * 31_030_658) / (15e9 * r * g)"),
        one(
            "predict_step",
            "r, b, g",
            f"computed = b / r\nmoved = {RING}\nreturn [computed + moved, g * b / (computed + moved)]",
        ),
        one(
            "predict_step",
            "r, b, g",
            f"speed = g * b / (b / r + {RING})\nreturn g * b / speed, speed",
        ),
    ],
    "iou": [iou(body) for body in (SETS, TABLE, ONE_HOT, LOOPED, BINS, TENSORS, PLACES, JACCARD)],
    "program": [
        PROGRAM,
        STEP_NUMBERS,
        BY_HAND,
        IN_MEMORY,
        WEIGHT_FILES,
        AS_A_CLASS,
        DATASET_OF_STEPS,
        MODULE,
    ],
    "model": [
        model(kind)
        for kind in (
            "as it is",
            "saved by TensorFlow",
            "probabilities",
            "module",
            "scaled inside",
            "two signatures",
            "with its optimizer",
            "other names",
        )
    ],
}
WRONG = {
    "plan": {
        "(by heart)": plan(
            "g * b / {62.5: 259.22, 46.26: 293.64, 40.36: 210.18, 59.58: 368.88, 17.91: 137.11}.get(r, r / 3)"
        ),
        "no-network": plan("b / r"),
        "whole-vectors": plan("b / r + 2 * (g - 1) * 4 * 31_030_658 / 15e9"),
        "one-image": plan(f"1 / r + {RING}", "g / step"),
        "batch-divided": plan(f"b / g / r + {RING}", "b / step"),
        "one-way": plan(f"b / r + {RING} / 2"),
        "one-batch": plan(f"b / r + {RING}", "b / step"),
        "one-byte": plan("b / r + " + RING.replace("4 * ", "")),
        "(exchanged)": plan(f"b / r + {RING}").replace(
            "return step, g * b / step", "return g * b / step, step"
        ),
    },
    "iou": {
        "dice": iou(
            "d = lambda a, b: 2 * (a & b).sum() / max(a.sum() + b.sum(), 1)\n"
            "return d(m > 0, p > 0), np.mean([d(m == k, p == k) for k in np.union1d(m, p) if k])"
        ),
        "recall": iou(
            "d = lambda a, b: (a & b).sum() / max(a.sum(), 1)\n"
            "return d(m > 0, p > 0), np.mean([d(m == k, p == k) for k in np.union1d(m, p) if k])"
        ),
        "precision": iou(
            "d = lambda a, b: (a & b).sum() / max(b.sum(), 1)\n"
            "return d(m > 0, p > 0), np.mean([d(m == k, p == k) for k in np.union1d(m, p) if k])"
        ),
        "by-pixels": iou(
            "d = lambda a, b: (a & b).sum() / (a | b).sum()\n"
            "kinds = [k for k in np.union1d(m, p) if k]\n"
            "sizes = [(m == k).sum() for k in kinds]\n"
            "return d(m > 0, p > 0), np.average([d(m == k, p == k) for k in kinds], weights=sizes)"
        ),
        "(in the other order)": iou(LOOPED + "[::-1]"),
        "accuracy": iou(
            LOOPED.replace(
                "return [np.sum((m > 0) & (p > 0)) / np.sum((m > 0) | (p > 0))",
                "return [np.mean(m == p)",
            )
        ),
        "background-counted": iou(LOOPED.replace("range(1, 11)", "range(11)")),
        "per-scene": one(
            "measure_iou",
            "masks, predicted",
            "def whole(m, p):\n"
            + "\n".join(f"    {s}" for s in LOOPED.split("\n"))
            + "\nreturn np.mean([whole(np.asarray(a), np.asarray(b)) for a, b in zip(masks, predicted)], axis=0)",
        ),
        "classes-of-masks": iou(LOOPED.replace("    if either:", "    if np.any(m == k):")),
        "classes-of-both": iou(
            LOOPED.replace("    if either:", "    if np.any(m == k) and np.any(p == k):")
        ),
        "classes-to-nine": iou(LOOPED.replace("range(1, 11)", "range(1, 10)")),
        "absent-as-zero": iou(
            LOOPED.replace(
                "    if either:\n        found.append(both / either)",
                "    found.append(both / max(either, 1))",
            )
        ),
        "classes-in-foreground": iou(
            LOOPED.replace("np.sum((m > 0) & (p > 0))", "np.sum((m > 0) & (p == m))")
        ),
    },
    "program": {
        "nothing-learned": change(
            PROGRAM,
            ("        optimizer.apply_gradients(zip(gradients, model.trainable_variables))\n", ""),
        ),
        "loss-of-pixels": change(
            PROGRAM, ("tf.reduce_mean(losses, axis=(1, 2))", "tf.reduce_sum(losses, axis=(1, 2))")
        ),
        "other-checksum": change(
            PROGRAM, ('np.abs(w, dtype="float64").sum()', 'w.sum(dtype="float64")')
        ),
        "each-alone": change(PROGRAM, *IGNORED),
        "other-examples": change(
            PROGRAM,
            (
                "for number, (images, masks) in shards.items()",
                "for number, (images, masks) in enumerate(shards.values())",
            ),
        ),
        "other-steps": change(
            PROGRAM,
            (
                "SHARDS, SAVE_EVERY, CLASSES = 32, 4, 10, 11",
                "SHARDS, SAVE_EVERY, CLASSES = 32, 4, 7, 11",
            ),
        ),
        "batch-norm": change(
            PROGRAM,
            (
                "    x = keras.layers.Conv2D(widths[0], 2, strides=2)(x)",
                "    x = keras.layers.BatchNormalization()(keras.layers.Conv2D(widths[0], 2, strides=2)(x))",
            ),
        ),
        "probabilities": change(
            PROGRAM,
            (
                "CLASSES, 1, bias_initializer=most",
                "CLASSES, 1, bias_initializer=most, activation='softmax'",
            ),
            ("from_logits=True", "from_logits=False"),
        ),
        "seed-ignored": change(
            PROGRAM,
            (
                "keras.utils.set_random_seed(options.seed)",
                "options.seed = 0\n    keras.utils.set_random_seed(0)",
            ),
        ),
        "mean-of-steps": change(
            PROGRAM,
            (
                "        last_loss.assign(train_step(*batch))\n",
                "        count = 1 + len(losses_seen)\n        losses_seen.append(float(train_step(*batch)))\n        last_loss.assign(sum(losses_seen) / count)\n",
            ),
            ("    def read_part(context):", "    losses_seen = []\n\n    def read_part(context):"),
        ),
        "own-mean": change(
            PROGRAM,
            (
                "tf.nn.compute_average_loss(per_scene, global_batch_size=GLOBAL_BATCH)",
                "tf.reduce_mean(per_scene)",
            ),
        ),
        "began-anew": change(
            PROGRAM, ("if latest := tf.train.latest_checkpoint(folder):", "if latest := None:")
        ),
        "position-lost": change(
            PROGRAM,
            (
                "make_part(shards, options.seed, int(step), total, replica_batch)",
                "make_part(shards, options.seed, 0, total - int(step), replica_batch)",
            ),
        ),
        "counted-anew": change(
            PROGRAM,
            (
                "    def read_part(context):",
                "    total += int(step)\n\n    def read_part(context):",
            ),
        ),
    },
    "model": {
        "nothing-found": model("nothing but background"),
        "one-class": model("one class of garment"),
        "": model("classes turned round"),
    },
}
REFUSED = {
    "program": {
        "all workers save into one folder": change(
            PROGRAM,
            (
                "aside = folder if chief else tempfile.mkdtemp()",
                "aside = folder if True else tempfile.mkdtemp()",
            ),
        ),
        "can't import utils": change(
            PROGRAM,
            (
                "import tensorflow as tf\n",
                "import tensorflow as tf\nfrom utils.data import load_scenes\n",
            ),
        ),
        "a worker looked for another worker's shard": change(
            PROGRAM, ("range(worker, SHARDS, workers)", "range(SHARDS)")
        ),
    },
}
# a whole program runs for half a minute: so many of them in `make test`, all in `make test-all`
DEAR = {"program": 0}
