"""Predict a whole data set with a saved model, on several workers that need no cluster.

    python capstone.py --output run1 --steps 60            # a model, and shards to try it with
    python batch_prediction.py --model run1/saved_model --shards run1/scenes-6000 --parts 2 \
        --compression ZLIB --output predicted

Start the second line as often as you like, on every machine that sees the folders, or let
`distlab run --independent --workers 4 --max-restarts 3 batch_prediction.py ...` start it four
times. A worker claims a shard, predicts its rows, and takes the next. Kill any of them at any
time: another one takes over its shard, and a new start continues with what is left.

Shards are TFRecord files. A record is one row: uint8 in the model's input shape, scaled here to
0..1. With --parts 2 it is the first of two such arrays (the capstone's scenes hold a mask, too).
predicted/SHARD.npy holds the most likely class of each row. Once all shards are done,
predicted/manifest.json says which rows are where. TensorFlow 2.21.
"""

import argparse
import fcntl
import fnmatch
import glob
import hashlib
import json
import os
import time
from pathlib import Path

import numpy as np
import tensorflow as tf


class Damaged(Exception):
    """A shard that cannot be read to its end."""


def load_model(folder: Path):
    """Return the model's function, the spec of its input, and the shape of a row's classes."""
    try:
        tf.saved_model.experimental.read_fingerprint(str(folder))  # open_output compares it
        serve = tf.saved_model.load(str(folder)).signatures["serving_default"]
    except Exception as error:  # a damaged one raises nearly anything
        why = str(error).splitlines()[0]
        raise SystemExit(f"--model {folder}: not a SavedModel with a signature ({why})") from None
    inputs, outputs = serve.structured_input_signature[1], serve.structured_outputs
    if len(inputs) != 1 or len(outputs) != 1:
        raise SystemExit(f"--model {folder}: must have one input and one output")
    [(name, spec)], [(output, found)] = inputs.items(), outputs.items()
    if not spec.dtype.is_floating or not has_rows(spec.shape):
        words = f"must be floats [None, ...], got {spec.dtype.name} {spec.shape}"
        raise SystemExit(f"--model {folder}: its input {words}")
    if not has_rows(found.shape) or not 2 <= found.shape[-1] <= 256:  # a class is one byte
        words = f"must be [None, ..., 2 to 256 classes], got {found.shape}"
        raise SystemExit(f"--model {folder}: its output {words}")
    return lambda rows: serve(**{name: rows})[output], spec, found.shape[1:-1]


def has_rows(shape) -> bool:
    """Return whether there may be any number of rows, all of one known shape."""
    return (shape.rank or 0) > 1 and shape[0] is None and None not in list(shape[1:])


def read_batches(shard: Path, shape, options):
    """Yield rows, a batch at a time: memory does not grow with the data. Raises Damaged."""
    size, row = int(np.prod(shape)), 0
    records = tf.data.TFRecordDataset(str(shard), options.compression).batch(options.batch_size)
    batches = records.prefetch(2).as_numpy_iterator()
    while True:
        try:
            batch = next(batches)
        except StopIteration:
            return
        except tf.errors.OpError as error:  # each record has a checksum
            why = error.message.splitlines()[0].split("}} ")[-1].split(" [Op:")[0]
            raise Damaged(f"{shard.name} cannot be read after row {row}: {why}") from None
        odd = {len(record) for record in batch} - {size * options.parts}
        if odd and row == 0:
            wanted = f"{list(shape)}, {size} bytes, times --parts {options.parts}"
            raise SystemExit(f"{shard}: a row has {odd.pop()} bytes. The model takes {wanted}")
        if odd:
            raise Damaged(f"{shard.name} has a row of {odd.pop()} bytes after row {row}")
        yield np.frombuffer(b"".join(batch), np.uint8).reshape(-1, options.parts, *shape)[:, 0]
        row += len(batch)


def predict_shard(shard: Path, model, options, file) -> dict:
    """Write the classes of all rows to `file` as .npy; return what the manifest says of them."""
    serve, spec, row_shape = model
    head, rows, checksum = {"descr": "|u1", "fortran_order": False}, 0, hashlib.sha256()
    np.lib.format.write_array_header_1_0(file, {**head, "shape": (0, *row_shape)})
    for batch in read_batches(shard, spec.shape[1:], options):
        logits = serve(tf.constant(batch / np.float32(255), spec.dtype))
        classes = tf.argmax(logits, axis=-1).numpy().astype(np.uint8).tobytes()
        file.write(classes)
        checksum.update(classes)
        rows += len(batch)
    file.seek(0)  # NumPy's header has room for a longer first axis
    np.lib.format.write_array_header_1_0(file, {**head, "shape": (rows, *row_shape)})
    file.flush()
    os.fsync(file.fileno())  # or a power cut could keep the name and lose the rows
    note = {"shard": shard.name, "bytes": shard.stat().st_size, "output": f"{shard.name}.npy"}
    return {**note, "rows": rows, "sha256": checksum.hexdigest()}


def finish_shard(shard: Path, model, options) -> int:
    """Predict one shard; output and note appear under their names only once they are complete."""
    claims = options.output / "claims"
    for old in claims.glob(f"{glob.escape(shard.name)}.part*"):  # of a worker that was killed
        old.unlink()
    part = claims / f"{shard.name}.part{os.getpid()}"
    try:
        with part.open("wb") as file:
            note = predict_shard(shard, model, options, file)
        part.rename(options.output / note["output"])
        part.write_text(json.dumps(note))
        part.rename(claims / f"{shard.name}.done")
    finally:
        part.unlink(missing_ok=True)
    return note["rows"]


def read_note(shard: Path, output: Path) -> dict | None:
    """Return the note of a shard that is done, None if it is not, or has changed since."""
    try:
        note = json.loads((output / "claims" / f"{shard.name}.done").read_text())
        is_same = note["bytes"] == shard.stat().st_size and (output / note["output"]).exists()
    except (FileNotFoundError, ValueError):  # a power cut may leave a note without its text
        return None
    return note if is_same else None


def open_output(shards: list[Path], options) -> None:
    """Make the folder, or make sure that what is in it came from the same settings."""
    model = tf.saved_model.experimental.read_fingerprint(str(options.model)).singleprint()
    settings = {"model": model, "shards": [shard.name for shard in shards], "parts": options.parts}
    claims = options.output / "claims"
    claims.mkdir(parents=True, exist_ok=True)
    with (claims / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (claims / "settings.json").exists():
            (claims / "settings").write_text(json.dumps(settings))
            (claims / "settings").rename(claims / "settings.json")
        before = json.loads((claims / "settings.json").read_text() or "{}")  # after a power cut
    if odd := [name for name in settings if settings[name] != before.get(name)]:
        words = f"holds the output of another run: {', '.join(odd)} differ"
        raise SystemExit(f"--output {options.output} {words}. Name another folder")


def predict_all(shards: list[Path], model, options) -> tuple[int, dict[str, str]]:
    """Work until every shard is done, here or elsewhere. Return own rows and damaged shards."""
    rows, damaged = 0, {}
    while left := [s for s in shards if s.name not in damaged and not read_note(s, options.output)]:
        for shard in left:
            # A lock ends with its process, however that dies. It also holds between machines on
            # NFS and other shared disks; a bucket has no locks, so give each worker its own shards.
            with (options.output / "claims" / f"{shard.name}.lock").open("w") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if not read_note(shard, options.output):
                        rows += finish_shard(shard, model, options)
                        print(f"done: {shard.name}", flush=True)
                except BlockingIOError:
                    time.sleep(0.1 / len(left))  # someone else has it, and may yet die
                except Damaged as error:
                    damaged[shard.name] = str(error)
                    print(f"damaged: {error}", flush=True)
    return rows, damaged


def write_manifest(shards: list[Path], damaged: dict[str, str], output: Path) -> int:
    """Write which rows are where, in the order of the shards; return how many there are."""
    notes, first = [], 0
    for shard in (shard for shard in shards if shard.name not in damaged):
        notes.append({"first_row": first, **read_note(shard, output)})
        first += notes[-1]["rows"]
    manifest = {"rows": first, "shards": notes, "damaged": damaged}
    aside = output / "claims" / f"manifest{os.getpid()}"  # each worker writes the same
    aside.write_text(json.dumps(manifest, indent=1))
    aside.rename(output / "manifest.json")
    return first


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="folder of a SavedModel")
    parser.add_argument("--shards", type=Path, required=True, help="folder of TFRecord files")
    parser.add_argument("--output", type=Path, required=True, help="folder, seen by all workers")
    parser.add_argument("--pattern", default="*.tfrecord", help="which files [*.tfrecord]")
    parser.add_argument("--compression", default="", choices=("", "ZLIB", "GZIP"))
    parser.add_argument("--parts", type=int, default=1, help="arrays in a record [1]")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--skip-damaged", action="store_true", help="finish without them")
    options = parser.parse_args()

    if min(options.parts, options.batch_size) < 1:
        raise SystemExit("--parts and --batch-size must be at least 1")
    shards = sorted(p for p in options.shards.glob("*") if fnmatch.fnmatch(p.name, options.pattern))
    if not shards:
        raise SystemExit(f"--shards {options.shards}: no file matches {options.pattern}")
    model = load_model(options.model)
    begun = time.perf_counter()
    try:
        open_output(shards, options)
        rows, damaged = predict_all(shards, model, options)
        if damaged and not options.skip_damaged:
            words = "Repair them and start again, or add --skip-damaged"
            raise SystemExit(f"{len(damaged)} of {len(shards)} shards are damaged. {words}")
        total = write_manifest(shards, damaged, options.output)
    except OSError as error:  # a full disk, a folder that cannot be written
        raise SystemExit(f"--output {options.output}: {error.strerror}") from None
    seconds = time.perf_counter() - begun
    report = {"rows": total, "rows_here": rows, "damaged": len(damaged)}
    print(json.dumps({**report, "rows_per_second_here": round(rows / seconds, 1)}))


if __name__ == "__main__":
    main()
