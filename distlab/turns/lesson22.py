"""Lesson 22: the loss of many pixels, and the file that a row of a prediction is in."""

import numpy as np

from distlab.turns.turn import Turn, call_with_tensors

_EACH = np.random.default_rng(0).uniform(0.5, 3.0, size=(4, 64, 64)).astype("float32")
_NOTES = [
    {"first_row": first, "rows": rows, "output": f"s{place}.npy"}
    for place, (first, rows) in enumerate([(0, 5), (5, 3), (8, 0), (8, 4)])
]

AVERAGE = Turn(
    lesson="22",
    name="average",
    answer="""
def average(each, global_batch_size):
    of_scenes = tf.reduce_mean(each, axis=[1, 2])
    return tf.reduce_sum(of_scenes) / global_batch_size
""",
    right="First over the pixels of a scene, then over the scenes of all replicas.",
    mistakes={
        "def average(each, global_batch_size):\n    return tf.reduce_sum(each) / global_batch_size": (
            "The pixels are added up and only the scenes divide: that's too large by height times "
            "width."
        ),
        "def average(each, global_batch_size):\n    return tf.reduce_mean(each)": (
            "That divides by this replica's scenes. Its share is part of the global batch."
        ),
        """
def average(each, global_batch_size):
    return tf.reduce_mean(each) / global_batch_size
""": "That divides by the scenes twice: once in the mean, once by the global batch.",
    },
    otherwise="A mean over each scene's pixels, [replica's scenes], then their sum over the global batch.",
    cases=[(_EACH, 8), (_EACH, 4)],
    call=call_with_tensors,
    read=float,
    tolerance=1e-4,
)
FIND_ROW = Turn(
    lesson="22",
    name="find_row",
    answer="""
def find_row(notes, number):
    place = max(k for k, note in enumerate(notes) if note["first_row"] <= number)
    return place, number - notes[place]["first_row"]
""",
    right="The last file that begins at or before the row has it, even if an empty one is between.",
    mistakes={
        """
def find_row(notes, number):
    return number // notes[0]["rows"], number % notes[0]["rows"]
""": "Files differ in their number of rows. Where each one begins is in its note.",
        """
def find_row(notes, number):
    place = max(k for k, note in enumerate(notes) if note["first_row"] <= number)
    return place, number
""": "That's the number among all rows. In its file, counting begins at 0 again.",
        """
def find_row(notes, number):
    place = max(k for k, note in enumerate(notes) if note["first_row"] < number)
    return place, number - notes[place]["first_row"]
""": "A file's first row is in that file already, not in the one before.",
    },
    otherwise="Which file is the last one that begins at or before the row? How far into it is the row?",
    cases=[(_NOTES, 2), (_NOTES, 5), (_NOTES, 8), (_NOTES, 11)],
)
