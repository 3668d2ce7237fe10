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
from distlab.labs.lab08 import exercise as lab08
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


def train(
    loss="tf.reduce_sum(losses) / batch",
    own="[rank::workers]",
    number="number",
    reduce="tf.distribute.get_replica_context().all_reduce('sum', gradient)",
    apply="weights.assign_sub(0.5 * strategy.run(step, args=(images, labels)))",
):
    return TRAIN.format(loss=loss, own=own, number=number, reduce=reduce, apply=apply)


KERAS = (
    HEAD
    + """
import keras
from distlab.labs.lab08 import exercise as lab08
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
from distlab.labs.lab08 import exercise as lab08
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


ON_READ = (
    "synchronization=tf.VariableSynchronization.ON_READ, aggregation=tf.VariableAggregation.SUM"
)


def saving(
    folder="shared if index == 0 else os.path.join(os.path.dirname(shared), f'temporary-{index}')",
    clean="if folder != shared: shutil.rmtree(folder)",
    options=ON_READ,
    write="checkpoint.write(f'{folder}/ckpt')",
):
    return f"""
import os, shutil, tempfile
from pathlib import Path
import tensorflow as tf
def make_counter(strategy):
    with strategy.scope():
        return tf.Variable(0.0, {options})

def save_run(strategy, checkpoint, shared):
    index = strategy.cluster_resolver.task_id
    folder = {folder}
    {write}
    {clean}
"""


ONE_FUNCTION = (
    HEAD
    + """
def make_worker_dataset(ids, global_batch_size, context):
    own = [int(i) for k, i in enumerate(ids) if k % context.num_input_pipelines == context.input_pipeline_id]
    size = context.get_per_replica_batch_size(global_batch_size)
    return tf.data.Dataset.from_generator(
        lambda: (own[k:k + size] for k in range(0, len(own), size)), output_signature=tf.TensorSpec([None], tf.int64))
"""
)
RIGHT = {
    "shards": [
        shards(),
        ONE_FUNCTION,
        shards(
            "data.window(1, shift=context.num_input_pipelines).flat_map(lambda w: w) if context.input_pipeline_id == 0 else data.skip(context.input_pipeline_id).window(1, shift=context.num_input_pipelines).flat_map(lambda w: w)"
        ),
        shards(
            "data.enumerate().filter(lambda k, i: k % context.num_input_pipelines == context.input_pipeline_id).map(lambda k, i: i)",
            "global_batch_size // 2",
        ),
        shards("data.skip(context.input_pipeline_id).shard(context.num_input_pipelines, 0)"),
        shards(
            "tf.data.Dataset.from_tensor_slices(tf.strided_slice(tf.constant(ids), [context.input_pipeline_id], [len(ids)], [context.num_input_pipelines]))"
        ),
        shards(
            "data.filter(lambda i: i % context.num_input_pipelines == context.input_pipeline_id)"
        ),
        shards(
            "tf.data.Dataset.from_tensor_slices(ids[context.input_pipeline_id::context.num_input_pipelines])",
            "global_batch_size // context.num_input_pipelines",
        ),
    ],
    "training": [
        train(),
        train().replace("weights.numpy()", "weights"),
        KERAS,
        IN_NUMPY,
        train(loss="tf.nn.compute_average_loss(losses, global_batch_size=batch)"),
        train(
            reduce="gradient",
            apply="g = strategy.run(step, args=(images, labels)); weights.assign_sub(lab08.RATE * strategy.reduce('SUM', g, axis=None))",
        ),
        train(
            loss="tf.reduce_mean(losses)",
            reduce="tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, gradient)",
        ),
        train().replace("step = tf.function(step)", "pass"),
    ],
    "saving": [
        saving(),
        saving(
            "Path(shared) if not index else Path(shared).with_name(f'w{index}')",
            "if index: [p.unlink() for p in folder.iterdir()]; folder.rmdir()",
            write="checkpoint.write(folder / 'ckpt')",
        ),
        saving(
            "os.path.join(os.path.dirname(shared), 'mine', str(index)) if index else shared",
            "if index: shutil.rmtree(os.path.dirname(folder))",
        ),
        saving(
            "shared + (f'-of-worker-{index}' if index else '')",
            "folder == shared or shutil.rmtree(folder)",
        ),
        saving(write="tf.train.Checkpoint(seen=checkpoint.seen).write(f'{folder}/ckpt')"),
        saving(options="trainable=False, dtype='float32', shape=[], " + ON_READ),
        saving(
            "shared if index == 0 else tempfile.mkdtemp()",
            "shutil.rmtree(folder) if index else None",
        ),
        saving(
            "None",
            "pass",
            write="with tempfile.TemporaryDirectory() as own: checkpoint.write(f'{own if index else shared}/ckpt')",
        ),
    ],
}
WRONG = {
    "shards": {
        "not-sharded": shards("data"),
        "rest-dropped": shards().replace(
            "return data.batch(", "return data.batch(drop_remainder=True, batch_size="
        ),
        "cut-to-fit": shards().replace(
            "from_tensor_slices(ids)",
            "from_tensor_slices(ids[:len(ids) // context.num_input_pipelines * context.num_input_pipelines])",
        ),
        "not-batched": shards().replace("return data.batch", "return data; data.batch"),
        "endless": shards().replace("return data.batch", "return data.repeat().batch"),
        "global-batch": shards(size="global_batch_size"),
        "always-the-first": shards("data.shard(context.num_input_pipelines, 0)"),
        "in-blocks": shards(
            "tf.data.Dataset.from_tensor_slices(np.array_split(ids, context.num_input_pipelines)[context.input_pipeline_id])"
        ),
        "batches-dealt": shards(
            shard="data.batch(global_batch_size // context.num_input_pipelines).shard(context.num_input_pipelines, context.input_pipeline_id).unbatch()"
        ),
    },
    "training": {
        "own-mean": train(loss="tf.reduce_mean(losses)"),
        "not-reduced": train(
            loss="tf.reduce_mean(losses)",
            reduce="gradient",
            apply="weights.assign_sub(0.5 * strategy.run(step, args=(images, labels)))",
        ),
        "not-reduced (divided by the batch)": train(reduce="gradient"),
        "one-batch-only": train(number="0"),
        "whole-batch": train(own=""),
        "averaged-again": train(
            reduce="tf.distribute.get_replica_context().all_reduce('mean', gradient)"
        ),
        "uphill": train(
            apply="weights.assign_add(0.5 * strategy.run(step, args=(images, labels)))"
        ),
    },
    "saving": {
        "chief-alone": saving(
            write="if index == 0: checkpoint.write(f'{folder}/ckpt')", clean="pass"
        ),
        "own-count": saving(options=ON_READ.replace("SUM", "ONLY_FIRST_REPLICA")),
        "at-each-addition": saving(options="aggregation=tf.VariableAggregation.SUM"),
        "averaged": saving(options=ON_READ.replace("SUM", "MEAN")),
        "counted-twice": saving(
            write="checkpoint.seen.assign(strategy.reduce('SUM', checkpoint.seen, axis=None) * 2); checkpoint.write(f'{folder}/ckpt')"
        ),
        "all-in-one-place": saving("shared"),
        "chief-elsewhere": saving(
            "os.path.join(os.path.dirname(shared), f'temporary-{index}')", "pass"
        ),
        "left-behind": saving(clean="pass"),
    },
}
