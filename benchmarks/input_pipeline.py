"""Input pipelines: from naive to tuned, on the local disk and on a slow store, side by side.

10,000 real images as PNGs in 8 TFRecord shards, batches of 128. The pipelines take
turns, one epoch each; the first epoch, which fills the caches, is shown by itself.
The limit is the same loop over one batch that is ready. Then reading through
TensorFlow Datasets, and through a tf.data service of two worker processes.
"""

import tempfile
from collections.abc import Mapping
from typing import Any

from utils.environment import quiet_tensorflow

with quiet_tensorflow():
    import tensorflow as tf
    import tensorflow_datasets as tfds

from utils.cluster import LocalCluster
from utils.data import load, make_tfds_folder
from utils.input_pipeline import LOCAL, SLOW, Shards, Store, write_shards
from utils.input_pipeline.chain import as_written
from utils.input_pipeline.ladder import (
    BATCH,
    LADDER,
    autotuned,
    batched_first,
    naive,
)
from utils.input_pipeline.measuring import make_limit, measure_rates
from utils.input_pipeline.service import DataService, through_service

WANTED = {"local disk": 6.0, "slow store": 8.0}  # times the naive rate, on two quiet cores


def run(rounds: int) -> None:
    """Print images per second of every pipeline, and the ratio to the naive one."""
    with tempfile.TemporaryDirectory(prefix="distlab-") as folder:
        shards = write_shards(load("fashion_mnist").train, folder)
        for title, store, most in (("local disk", LOCAL, rounds), ("slow store", SLOW, 3)):
            run_ladder(title, shards, store, min(rounds, most))
        run_tfds(min(rounds, 5))
        run_service(shards, min(rounds, 5))


def run_ladder(title: str, shards: Shards, store: Store, rounds: int) -> None:
    datasets = {name: as_written(make(shards, store)) for name, make in LADDER.items()}
    datasets["all left to AUTOTUNE"] = autotuned(shards, store)
    datasets["the limit"] = as_written(make_limit(naive(shards)))
    print(
        f"\nInput pipelines, {title}, images per second ({shards.examples:,} images, {rounds} "
        f"rounds); wanted: tuned at least {WANTED[title]:g} times naive"
    )
    show_rates(datasets, rounds, to="naive")


def run_tfds(rounds: int) -> None:
    """Read the bundled sample through TFDS's own builder, as it comes and cached."""
    builder = tfds.builder_from_directory(make_tfds_folder("fashion_mnist"))
    examples = builder.as_dataset(split="train", as_supervised=True)
    plain = examples.batch(BATCH)
    datasets = {"TFDS as it comes": plain, "TFDS, cached, prefetched": plain.cache().prefetch(2)}
    print("\nReading through TensorFlow Datasets, images per second (decoded, not augmented)")
    show_rates(datasets, rounds, to="TFDS as it comes")


def run_service(shards: Shards, rounds: int) -> None:
    """The same pipeline in this process and in two data workers on the same machine."""
    local = batched_first(shards)
    dynamic = tf.data.experimental.service.ShardingPolicy.DYNAMIC
    print("\ntf.data service, two workers on this machine, images per second")
    with LocalCluster(workers=1) as cluster, DataService(cluster, workers=2) as service:
        served = through_service(local, service.address, dynamic)
        datasets = {"in this process": local, "through the service": served}
        show_rates(datasets, rounds, to="in this process")


def show_rates(datasets: Mapping[str, Any], rounds: int, to: str) -> None:
    rates = measure_rates(datasets, rounds)
    print(f"{'':26}{'first epoch':>12}{'then':>12}{'to the first row':>20}")
    for name in datasets:
        ratio = f"{rates.ratio(name, to):.1f}x"
        row = f"{name:<26}{rates.first(name):>12,.0f}{rates.median(name):>12,.0f}{ratio:>20}"
        print(row, flush=True)
