"""SavedModels for lab 15, made of the trained one in solutions/: right, wrong, and attacks."""

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from distlab.labs.lab15.saved_models import MODEL_FILE, pack_model, unpack_model

TRAINED = Path(__file__).parents[1] / "solutions" / MODEL_FILE
_FOLDER = tempfile.TemporaryDirectory(prefix="capstone-models-")


@cache
def make_model(kind: str) -> str:
    """Return the path of the packed SavedModel that `kind` describes."""
    import tensorflow as tf

    if kind == "as it is":
        return str(TRAINED)
    root = Path(_FOLDER.name, kind.replace(" ", "-"))
    unpack_model(TRAINED, root / "trained")
    trained = tf.saved_model.load(str(root / "trained"))
    module = tf.Module()
    module.trained = trained
    if kind == "with its optimizer":
        module.slots = [tf.Variable(tf.zeros((64, 64))) for _ in range(4)]
    ask = trained.signatures["serving_default"]
    (name,) = ask.structured_input_signature[1]

    def predict(images: Any) -> Any:
        return list(ask(**{name: images}).values())[0]

    answer = _list_answers(tf, predict)[kind]
    given = "picture" if kind == "other names" else "images"
    spec = tf.TensorSpec([None, 64, 64, 1], tf.float32, name=given)
    serve = tf.function(answer, input_signature=[spec])
    module.serve = serve
    signatures = {"serving_default": serve}
    if kind == "two signatures":
        signatures["masks"] = tf.function(
            lambda x: tf.argmax(answer(x), -1), input_signature=[spec]
        )
    tf.saved_model.save(module, str(root / "saved_model"), signatures=signatures)
    return pack_model(root, str(root / MODEL_FILE))


def _list_answers(tf: Any, predict: Callable[[Any], Any]) -> dict[str, Callable[[Any], Any]]:
    def write_a_file(images: Any) -> Any:
        tf.io.write_file("/tmp/left-by-a-model", "x")
        return predict(images)

    def read_a_file(images: Any) -> Any:
        size = tf.strings.length(tf.io.read_file("/etc/hosts"))
        return predict(images) + 0 * tf.cast(size, tf.float32)

    def never_end(images: Any) -> Any:
        turns = tf.while_loop(lambda k: k >= 0, lambda k: [(k + 1) % 7], [tf.size(images)])
        return predict(images) + tf.cast(turns[0], tf.float32)

    def call_python(images: Any) -> Any:
        return tf.ensure_shape(
            tf.numpy_function(lambda x: x, [predict(images)], tf.float32), [None, 64, 64, 11]
        )

    def find_ink(images: Any) -> Any:
        ink = tf.cast(images > 0.17, tf.float32)
        return tf.concat([1 - ink, ink, tf.zeros_like(tf.repeat(ink, 9, axis=-1))], axis=-1)

    order = [0, *range(2, 11), 1]
    return {
        "saved by TensorFlow": predict,
        "with its optimizer": predict,
        "other names": predict,
        "two signatures": predict,
        "module": lambda images: {"logits": predict(images)},
        "probabilities": lambda images: tf.nn.softmax(predict(images)),
        "scaled inside": lambda images: predict((images * 255.0) / 255.0) * 2.0 - 1.0,
        "nothing but background": lambda images: tf.one_hot(
            tf.zeros(tf.shape(images)[:3], tf.int32), 11
        ),
        "one class of garment": find_ink,
        "classes turned round": lambda images: tf.gather(predict(images), order, axis=-1),
        "writes a file": write_a_file,
        "reads a file": read_a_file,
        "never ends": never_end,
        "calls Python": call_python,
        "masks, not logits": lambda images: tf.argmax(predict(images), axis=-1),
        "far too large": lambda images: tf.zeros((tf.shape(images)[0], 1024, 1024, 11)),
    }
