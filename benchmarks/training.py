"""Training throughput: our custom loop and `fit` against the loop of TensorFlow's tutorial.

The tutorial's loop is Python code over batches: one compiled step at a time, the
loss reduced over the replicas and added up in Python after every step. All three
train the same network on the same images with the same global batch size. They
take turns, one epoch each, so that whatever else the machine does hits all of
them; the first epoch of each (it compiles) isn't counted. Processor time is
shown beside the clock's: other programs disturb it less.
"""

import statistics
import time
from collections.abc import Callable

from utils.environment import quiet_tensorflow, versions

with quiet_tensorflow():
    import keras
    import tensorflow as tf

from utils.data import load
from utils.data.batches import BatchPlan
from utils.devices import count_gpus, use_logical_devices
from utils.measure import Stopwatch
from utils.models import build_cnn
from utils.placement import describe_strategy
from utils.strategies import make_strategy
from utils.training import TrainConfig
from utils.training.input_feed import ImageFeed
from utils.training.loops import LOOP_MAKERS
from utils.training.progress import RunProgress
from utils.training.state import make_state

GLOBAL_BATCH_SIZE = 128
LOOPS = ("tutorial", "custom", "fit")


def run(rounds: int) -> None:
    """Measure `rounds` epochs of each loop and print images per second.

    On 1 GPU and on all of them, or on 1 and 2 logical CPU devices where there are none.
    """
    gpus = count_gpus()
    if not gpus:
        use_logical_devices(2)
    data = load("fashion_mnist")
    print("\nTraining, images per second (CNN, Fashion-MNIST sample, 10,000 images an epoch,")
    print(f"global batch {GLOBAL_BATCH_SIZE}); {describe_versions()}; {rounds} rounds")
    print("                         images per second     to the tutorial's loop")
    print("replicas  loop             median      best      clock  processor time")
    for replicas in sorted({1, gpus or 2}):
        print(describe_strategy(make_strategy("mirrored", replicas)))
        clock, processor = measure(replicas, data, rounds)
        for name in LOOPS:
            rates = [len(data.train) / seconds for seconds in clock[name]]
            median, best = statistics.median(rates), max(rates)
            faster, cheaper = compare(clock, name), compare(processor, name)
            numbers = f"{median:>13,.0f}{best:>10,.0f}{faster:>10.2f}x{cheaper:>15.2f}x"
            print(f"{replicas:<10}{name:<10}{numbers}", flush=True)


def compare(seconds: dict[str, list[float]], name: str) -> float:
    """Return how many times as fast as the tutorial's loop `name` is: the median over rounds."""
    return statistics.median(a / b for a, b in zip(seconds["tutorial"], seconds[name]))


def describe_versions() -> str:
    found = versions()
    return f"TensorFlow {found['tensorflow']}, Keras {found['keras']}"


def measure(replicas: int, data, rounds: int) -> tuple[dict[str, list[float]], ...]:
    """Return the seconds of each round's epoch for every loop, by the clock and of processors."""
    trainers = {
        "tutorial": make_tutorial_epoch(replicas, data),
        "custom": make_our_epoch(replicas, data, "custom"),
        "fit": make_our_epoch(replicas, data, "fit"),
    }
    clock: dict[str, list[float]] = {name: [] for name in LOOPS}
    processor: dict[str, list[float]] = {name: [] for name in LOOPS}
    for round_number in range(rounds + 1):
        shift = round_number % len(LOOPS)
        for name in LOOPS[shift:] + LOOPS[:shift]:
            begun = time.process_time()
            with Stopwatch() as watch:
                trainers[name]()
            if round_number:
                clock[name].append(watch.seconds)
                processor[name].append(time.process_time() - begun)
        time.sleep(0.2)
    return clock, processor


def make_our_epoch(replicas: int, data, loop: str) -> Callable[[], None]:
    """Return a function that trains one more epoch with `utils.training`."""
    config = TrainConfig(
        strategy="mirrored", replicas=replicas, loop=loop, global_batch_size=GLOBAL_BATCH_SIZE
    )
    state = make_state(make_strategy("mirrored", replicas), config)
    plan = BatchPlan(len(data.train), GLOBAL_BATCH_SIZE, replicas)
    feed = ImageFeed(data.train, plan, config)
    run = RunProgress(config, feed)
    train_on = LOOP_MAKERS[loop](state, run, feed)

    def train_epoch() -> None:
        batches = feed.batches(run.position.epoch)
        run.begin_epoch()
        state.reset_metrics()
        train_on(batches)
        run.end_epoch(state.read_metrics)

    return train_epoch


def make_tutorial_epoch(replicas: int, data) -> Callable[[], None]:
    """Return a function that trains one more epoch the way the tutorial does."""
    strategy = make_strategy("mirrored", replicas)
    images = (data.train.images / 255).astype("float32")[..., None]
    examples = tf.data.Dataset.from_tensor_slices((images, data.train.labels))
    batches = examples.shuffle(len(images)).batch(GLOBAL_BATCH_SIZE)
    distributed = strategy.experimental_distribute_dataset(batches)
    with strategy.scope():
        model = build_cnn()
        optimizer = keras.optimizers.Adam()
        optimizer.build(model.trainable_variables)
        accuracy = keras.metrics.SparseCategoricalAccuracy()
        per_example = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)

    def train_step(inputs):
        images, labels = inputs
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            losses = per_example(labels, logits)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=GLOBAL_BATCH_SIZE)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        accuracy.update_state(labels, logits)
        return loss

    @tf.function
    def distributed_train_step(inputs):
        losses = strategy.run(train_step, args=(inputs,))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    def train_epoch() -> None:
        total, steps = 0.0, 0
        for inputs in distributed:
            total += distributed_train_step(inputs)
            steps += 1
        float(total / steps), float(accuracy.result())
        accuracy.reset_state()

    return train_epoch
