"""A dataset taken apart into its stages, and put together again with other settings.

A `tf.data.Dataset` keeps the dataset that it was made from, and the function that it
was given. So a chain such as

    files.flat_map(TFRecordDataset).map(parse).map(augment).batch(128)

can be walked back to its source, and each stage done again: in parallel, in another
order, with a cache in between. This reads attributes of TensorFlow 2.21 that aren't
public; a stage that isn't recognized, and all before it, counts as the source and stays unchanged.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# tf.data class -> kind of stage
KINDS = {
    "_FlatMapDataset": "read",
    "_InterleaveDataset": "read",
    "_ParallelInterleaveDataset": "read",
    "TFRecordDatasetV2": "read",
    "_MapDataset": "map",
    "_ParallelMapDataset": "map",
    "_FilterDataset": "filter",
    "_BatchDataset": "batch",
    "_ParallelBatchDataset": "batch",
    "_ShuffleDataset": "shuffle",
    "CacheDataset": "cache",
    "_PrefetchDataset": "prefetch",
    "_RepeatDataset": "repeat",
    "_TakeDataset": "take",
    "_SkipDataset": "skip",
    "_OptionsDataset": "options",
}
CONTROL = {"If", "While", "Case", "StatefulPartitionedCall", "PartitionedCall", "Assert"}
CONTROL |= {"LookupTableFindV2", "ReduceDataset"}


@dataclass(frozen=True)
class ChainStage:
    """One stage of a chain: its kind, its name, and everything up to it."""

    kind: str
    name: str
    dataset: Any
    function: Callable[..., Any] | None = None
    random: bool = False  # whether it may give another result the next time

    @property
    def batch_form(self) -> Callable[..., Any] | None:
        return getattr(self.function, "batch_form", None)


def as_written(dataset: Any) -> Any:
    """Return `dataset` run exactly as it is written: no rewriting, no tuning by TensorFlow.

    By default TensorFlow makes maps parallel, fuses them with the batch, and tunes
    the numbers of calls while the pipeline runs.
    """
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    return dataset.with_options(options)


def take_apart(dataset: Any) -> list[ChainStage]:
    """Return the stages of `dataset` from its source on; the source is the first."""
    stages: list[ChainStage] = []
    while True:
        kind = KINDS.get(type(dataset).__name__, "")
        inputs = dataset._inputs() if hasattr(dataset, "_inputs") else []
        whole = type(dataset).__name__ == "TFRecordDatasetV2"  # names of files and their reader
        if not kind or not _is_known(kind, dataset) or (len(inputs) != 1 and not whole):
            name = type(dataset).__name__.strip("_").removesuffix("V2")
            stages.append(ChainStage("source", name, dataset))
            break
        stages.append(_describe(kind, dataset))
        if whole:
            stages.append(ChainStage("source", "file names", None))
            break
        dataset = inputs[0]
    stages.reverse()
    return _number(stages)


def _is_known(kind: str, dataset: Any) -> bool:
    """Return whether the attributes are there that the stage is done again from."""
    needed = {
        "read": ("_map_func",),
        "map": ("_map_func",),
        "filter": ("_predicate",),
        "batch": ("_batch_size", "_drop_remainder"),
        "shuffle": ("_buffer_size", "_reshuffle_each_iteration"),
        "cache": ("_filename",),
        "prefetch": ("_buffer_size",),
        "repeat": ("_count",),
        "take": ("_count",),
        "skip": ("_count",),
        "options": (),
    }[kind]
    if type(dataset).__name__ == "TFRecordDatasetV2":
        needed = ("_filenames", "_compression_type", "_buffer_size")
    return all(hasattr(dataset, name) for name in needed)


def _describe(kind: str, dataset: Any) -> ChainStage:
    wrapper = getattr(dataset, "_map_func", getattr(dataset, "_predicate", None))
    if wrapper is not None:
        function = getattr(wrapper, "_func", None)
        name = f"{kind} {name_of(function)}"
        return ChainStage(
            kind, name, dataset, function, kind == "map" and is_random(wrapper.function)
        )
    if kind in ("batch", "shuffle"):
        size = dataset._batch_size if kind == "batch" else dataset._buffer_size
        return ChainStage(kind, f"{kind} {int(size)}", dataset)
    return ChainStage(kind, "read TFRecordDataset" if kind == "read" else kind, dataset)


def name_of(function: Any) -> str:
    """Return the name of a stage's function, for people: "parse", "TFRecordDataset", "lambda"."""
    name = getattr(function, "__name__", type(function).__name__)
    return {"<lambda>": "lambda", "TFRecordDatasetV2": "TFRecordDataset"}.get(name, name)


def _number(stages: list[ChainStage]) -> list[ChainStage]:
    """Return the stages with names that differ: "map lambda", "map lambda 2"."""
    seen: dict[str, int] = {}
    named = []
    for stage in stages:
        seen[stage.name] = seen.get(stage.name, 0) + 1
        more = f" ({seen[stage.name]})" if seen[stage.name] > 1 else ""
        fields = (stage.dataset, stage.function, stage.random)
        named.append(ChainStage(stage.kind, stage.name + more, *fields))
    return named


def is_random(function: Any) -> bool:
    """Return whether a traced function has an operation with a state: a random draw, a variable.

    Such a function may give another result for the same element, so a cache after
    it would change what is delivered.
    """
    graph = function.graph.as_graph_def()
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    raw = {node.op for node in nodes} - CONTROL - {"Placeholder", "Arg", "_Arg", "_Retval"}
    return any(_is_stateful(name) for name in raw)


def _is_stateful(operation: str) -> bool:
    from tensorflow.python.framework import op_def_registry

    definition = op_def_registry.get(operation)
    return definition is not None and definition.is_stateful
