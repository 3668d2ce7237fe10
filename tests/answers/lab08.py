# ruff: noqa: E501
"""Lab 08: answers that must pass, in several styles, and answers that must be refused by name."""

HEAD = "import tensorflow as tf\nimport numpy as np\n"


def shards(
    shard="data.shard(context.num_input_pipelines, context.input_pipeline_id)",
    size="context.get_per_replica_batch_size(global_batch_size)",
):
    return f"""{HEAD}
def make_worker_dataset(ids, global_batch_size, context):
    data = tf.data.Dataset.from_tensor_slices(ids)
    data = {shard}
    return data.batch({size})
"""


TRAIN = (
    HEAD
    + """
from distlab.exercises import lab08
def train_worker(seed, steps, batch):
    from distlab.exercises import softmax
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    rank, workers = strategy.cluster_resolver.task_id, strategy.num_replicas_in_sync
    with strategy.scope():
        weights = tf.Variable(softmax.draw_weights(seed))
    def step(images, labels):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, images @ weights)
            loss = {loss}
        gradient = tape.gradient(loss, weights)
        return {reduce}
    step = tf.function(step)
    for number in range(steps):
        images, labels = lab08.read_step(seed, {number}, batch)
        images, labels = tf.constant(images{own}), tf.constant(labels{own})
        {apply}
    return weights.numpy()
"""
)


def train(loss="tf.reduce_sum(losses) / batch", own="[rank::workers]", number="number",
          reduce="tf.distribute.get_replica_context().all_reduce('sum', gradient)",
          apply="weights.assign_sub(0.5 * strategy.run(step, args=(images, labels)))"):  # fmt: skip
    return TRAIN.format(loss=loss, own=own, number=number, reduce=reduce, apply=apply)


KERAS = (
    HEAD
    + """
import keras
from distlab.exercises import lab08
def train_worker(seed, steps, batch):
    from distlab.exercises import softmax
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    rank, workers = strategy.cluster_resolver.task_id, strategy.num_replicas_in_sync
    with strategy.scope():
        model = keras.Sequential([keras.Input((784,), dtype="float64"), keras.layers.Dense(10, use_bias=False, dtype="float64")])
        optimizer = keras.optimizers.SGD(lab08.RATE)
        optimizer.build(model.trainable_variables)
    model.set_weights([softmax.draw_weights(seed)])
    @tf.function
    def step(images, labels):
        def replica(images, labels):
            with tf.GradientTape() as tape:
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(images))
                loss = tf.nn.compute_average_loss(losses, global_batch_size=batch)
            optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        strategy.run(replica, args=(images, labels))
    for number in range(steps):
        images, labels = lab08.read_step(seed, number, batch)
        step(tf.constant(images[rank::workers]), tf.constant(labels[rank::workers]))
    return model.get_weights()[0]
"""
)
IN_NUMPY = (
    HEAD
    + """
from distlab.exercises import lab08
def train_worker(seed, steps, batch):
    from distlab.exercises import softmax
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    rank, workers = strategy.cluster_resolver.task_id, strategy.num_replicas_in_sync
    weights = softmax.draw_weights(seed)
    for number in range(steps):
        images, labels = lab08.read_step(seed, number, batch)
        images, labels = images[rank::workers], labels[rank::workers]
        part = images.T @ softmax.slopes(images @ weights, labels) / batch
        total = strategy.reduce(tf.distribute.ReduceOp.SUM, tf.constant(part), axis=None)
        weights = weights - lab08.RATE * total.numpy()
    return weights
"""
)


def saving(choose="shared if index == 0 else os.path.join(os.path.dirname(shared), f'temporary-{index}')",
           clean="if folder != shared: shutil.rmtree(folder)"):  # fmt: skip
    return f"""
import os, shutil, tempfile
from pathlib import Path
def choose_folder(shared, index):
    return {choose}

def clean_up(shared, folder, index):
    {clean}
"""


RIGHT = {
    "shards": [
        shards(),
        shards(
            "data.filter(lambda i: i % context.num_input_pipelines == context.input_pipeline_id)"
        ),
        shards(
            "tf.data.Dataset.from_tensor_slices(ids[context.input_pipeline_id::context.num_input_pipelines])",
            "global_batch_size // context.num_input_pipelines",
        ),
    ],
    "training": [train(), train().replace("weights.numpy()", "weights"), KERAS, IN_NUMPY],
    "saving": [
        saving(),
        saving(
            "Path(shared) if not index else Path(shared).with_name(f'w{index}')",
            "if index > 0: [p.unlink() for p in Path(folder).iterdir()]; Path(folder).rmdir()",
        ),
        saving(
            "shared if index == 0 else tempfile.mkdtemp(dir=os.path.dirname(shared))",
            "shutil.rmtree(folder) if index else None",
        ),
    ],
}
WRONG = {
    "shards": {
        "not-sharded": shards("data"),
        "global-batch": shards(size="global_batch_size"),
        "always-the-first": shards("data.shard(context.num_input_pipelines, 0)"),
        "in-blocks": shards(
            "tf.data.Dataset.from_tensor_slices(np.array_split(ids, context.num_input_pipelines)[context.input_pipeline_id])"
        ),
    },
    "training": {
        "own-mean": train(loss="tf.reduce_mean(losses)"),
        "not-reduced": train(
            loss="tf.reduce_mean(losses)",
            reduce="gradient",
            apply="weights.assign_sub(0.5 * strategy.run(step, args=(images, labels)))",
        ),
        "one-batch-only": train(number="0"),
    },
    "saving": {
        "all-in-one-place": saving("shared"),
        "chief-elsewhere": saving(
            "os.path.join(os.path.dirname(shared), f'temporary-{index}')", "shutil.rmtree(folder)"
        ),
        "others-share": saving(
            "shared if index == 0 else os.path.join(os.path.dirname(shared), 'temporary')",
            "shutil.rmtree(folder, ignore_errors=True) if index else None",
        ),
        "left-behind": saving(clean="pass"),
        "inside-shared": saving(
            "shared if index == 0 else os.path.join(shared, f'temporary-{index}')"
        ),
        "shared-removed": saving(clean="shutil.rmtree(folder)"),
    },
}
