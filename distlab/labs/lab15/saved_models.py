"""A submitted SavedModel: packed into one file, read as plain data, asked for masks.

A SavedModel isn't trusted. Its graph may name any file, so a graph with operations that read or
write files, call Python or keep state isn't run at all. The rest runs in its own process with a
time limit, and only its answers come back.
"""

import os
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from distlab.exercises.refusing import refuse
from distlab.exercises.worker_runs import get_cluster
from distlab.submission import ATTACHED, MAX_ATTACHED_BYTES

MODEL_FILE = ATTACHED["lab15"]["model"]
MAX_UNPACKED_BYTES, MAX_FILES = 16 * 2**20, 20
ASK_SECONDS, AT_ONCE = 40.0, 50
SCENE, CLASSES = (64, 64, 1), 11
_FILES = re.compile(
    r"saved_model\.pb|fingerprint\.pb|keras_metadata\.pb|"
    r"variables/variables\.(index|data-\d{5}-of-\d{5})"
)
# the stateful or file operations of any exported Keras model
ORDINARY = frozenset(
    "VarHandleOp ReadVariableOp AssignVariableOp ResourceGather VarIsInitializedOp Placeholder "
    "PartitionedCall StatefulPartitionedCall SaveV2 RestoreV2 MergeV2Checkpoints ShardedFilename "
    "NoOp Assert DisableCopyOnRead".split()
)
# of those without state: what reads or writes files, calls Python, and loops, which need not end
NEVER = frozenset(
    "ReadFile MatchingFiles RestoreSlice Restore ImmutableConst GenerateVocabRemapping "
    "LoadAndRemapMatrix DecodeProtoV2 EncodeProto DebugIdentity DebugIdentityV2 DebugIdentityV3 "
    "DebugNanCount DebugNumericSummary DebugNumericSummaryV2 PyFuncStateless StatelessWhile While "
    "For Enter RefEnter NextIteration RefNextIteration".split()
)


def pack_model(folder: str | os.PathLike[str], to: str = MODEL_FILE) -> str:
    """Pack FOLDER/saved_model into the file `to`, to submit, and return its name.

    Without such a folder, what was packed before is kept. Raises AssertionError if there is
    neither, or if the file would be larger than 4 MiB.
    """
    model = Path(folder, "saved_model")
    if not (model / "saved_model.pb").is_file():
        if Path(to).is_file():
            return to
        raise refuse(
            f"{folder}/saved_model isn't there yet. Train first, in a terminal, as the lab says."
        )
    partial = Path(f"{to}.part")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(model.rglob("*")):
            name = path.relative_to(model).as_posix()
            if _FILES.fullmatch(name):
                archive.write(path, name)
    size = partial.stat().st_size
    if size > MAX_ATTACHED_BYTES:
        partial.unlink()
        raise refuse(
            f"The packed SavedModel must have at most 4 MiB, got {size / 2**20:.1f}. Export the "
            "model without its optimizer, or make it narrower."
        )
    partial.replace(to)
    return to


def unpack_model(path: str | os.PathLike[str], to: Path) -> None:
    """Unpack a file of `pack_model` into the folder `to`; AssertionError for anything else."""
    if Path(path).is_dir():
        raise refuse(
            f"{Path(path).name} must be a file, got a folder. lab15.pack_model makes a file of it, "
            "and returns the file's name."
        )
    if not Path(path).is_file():
        raise refuse(
            f"{Path(path).name} must be submitted too, and isn't there. `distlab submit` packs it."
        )
    try:
        with zipfile.ZipFile(path) as archive:
            items = archive.infolist()
            odd = [i.filename for i in items if not _FILES.fullmatch(i.filename)]
            if odd or len(items) > MAX_FILES:
                raise refuse(
                    f"{Path(path).name} must hold a SavedModel's files only, at most {MAX_FILES}, "
                    f"got {odd[:3] or len(items)}. Pack it with lab15.pack_model."
                )
            if sum(item.file_size for item in items) > MAX_UNPACKED_BYTES:
                raise refuse(
                    f"{Path(path).name} must unpack to at most 16 MiB. Make the model narrower."
                )
            for item in items:
                target = to / item.filename
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(item) as stream:
                    target.write_bytes(stream.read(MAX_UNPACKED_BYTES))
    except (zipfile.BadZipFile, OSError, ValueError, RuntimeError) as error:
        raise refuse(
            f"{Path(path).name} can't be unpacked ({error}). Pack it again with lab15.pack_model."
        ) from None


def read_weights(folder: Path) -> list[np.ndarray]:
    """Return the weights of a SavedModel, read as plain data, each once; [] if there are none.

    `keras.Model.export` writes every weight twice, and names them differently every time.
    """
    import tensorflow as tf

    prefix = str(folder / "variables" / "variables")
    try:
        reader = tf.train.load_checkpoint(prefix)
        found = {n: reader.get_tensor(n) for n in reader.get_variable_to_shape_map()}
    except Exception:  # TensorFlow raises many types of errors for a bad checkpoint
        return []
    kept = {
        (array.shape, array.tobytes()): array
        for name, array in found.items()
        if isinstance(array, np.ndarray) and array.dtype.kind == "f" and "optimizer" not in name
    }
    return list(kept.values())


def ask_model(folder: Path, images: np.ndarray, masks: bool = False) -> np.ndarray:
    """Return the logits [n, 64, 64, 11] of a SavedModel for images [n, 64, 64, 1] in 0 to 1.

    With `masks` the largest one's class of each pixel, uint8 [n, 64, 64]. Raises AssertionError
    with the reason if it can't be asked.
    """
    from utils.cluster.failures import ClusterError

    try:
        (found,) = get_cluster(1).run(
            _ask, str(folder), images, masks, timeout=ASK_SECONDS, echo=False
        )
    except ClusterError as error:
        late = "was not done" in str(error)
        why = f"no answer within {ASK_SECONDS:.0f} s" if late else str(error)[:300]
        raise refuse(f"The SavedModel doesn't answer: {why}") from None
    if isinstance(found, str):
        raise refuse(found)
    kind, shape, body = found
    return np.frombuffer(body, kind).reshape(shape)


def _ask(folder: str, images: np.ndarray, masks: bool) -> Any:
    """In a worker: return the logits, or the masks, or the reason why there are none."""
    import tensorflow as tf

    if odd := find_odd_operations(folder):
        return (
            f"the SavedModel's graph holds {', '.join(odd[:4])}: masks come from the scene "
            "alone, so no files, no Python, no loops and no state are needed"
        )
    try:
        loaded = tf.saved_model.load(folder)
        answer = loaded.signatures["serving_default"]
        (name,) = answer.structured_input_signature[1]
        pieces = []
        for first in (-1, *range(0, len(images), AT_ONCE)):
            part = tf.constant(images[first : first + AT_ONCE] if first >= 0 else images[:1])
            logits = list(answer(**{name: part}).values())[0]
            if tuple(logits.shape) != (len(part), *SCENE[:2], CLASSES):
                return (
                    f"for {len(part)} scenes the SavedModel answers {list(logits.shape)}, "
                    f"expected [{len(part)}, 64, 64, {CLASSES}]: logits of each pixel"
                )
            if first < 0:  # one scene, to see its answer before predicting all
                continue
            numbers = tf.cast(logits, tf.float32).numpy()
            pieces.append(numbers.argmax(axis=-1).astype(np.uint8) if masks else numbers)
    except Exception as error:
        return f"the SavedModel can't be asked: {type(error).__name__}: {error}"[:400]
    found = np.concatenate(pieces)
    return found.dtype.str, found.shape, found.tobytes()


def find_odd_operations(folder: str) -> list[str]:
    """Return the operations of a SavedModel's graph that no exported model needs, by name."""
    from tensorflow.python.framework import op_def_registry

    found = []
    for name in sorted(set(_list_operations(folder))):
        known = op_def_registry.get(name)
        state = known is None or known.is_stateful or name in NEVER
        if state and name not in ORDINARY:
            found.append(name)
    return found


def _list_operations(folder: str) -> Iterator[str]:
    from tensorflow.core.protobuf import saved_model_pb2

    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString(Path(folder, "saved_model.pb").read_bytes())
    for part in saved.meta_graphs:
        yield from (node.op for node in part.graph_def.node)
        functions = {f.signature.name for f in part.graph_def.library.function}
        for function in part.graph_def.library.function:
            yield from (node.op for node in function.node_def if node.op not in functions)
