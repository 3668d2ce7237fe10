"""Lesson 11: the pieces of a variable and the bytes of a step."""

from typing import Any

from distlab.turns.turn import Turn


def _leave_out_row_numbers(kibibytes: Any) -> Any:
    """Return the KiB of the rows alone, also if their numbers (4 or 8 bytes each) are in it."""
    rows = 32 * 49 / 1024
    ways = {rows * (2 * 16 * 4 + size * times) for size in (4, 8) for times in (1, 2)}
    return 196.0 if kibibytes in ways else kibibytes


PIECES = Turn(
    lesson="11",
    name="pieces",
    answer="""
        def count_pieces(size, min_shard_bytes, max_shards):
            return min(max_shards, -(-size // min_shard_bytes))
    """,
    right="A variable a little larger than the minimum is already cut in two.",
    mistakes={
        """
        def count_pieces(size, min_shard_bytes, max_shards):
            return max(1, min(max_shards, size // min_shard_bytes))
        """: (
            "That's what the name promises. But TensorFlow rounds up: 392 KiB become two pieces, "
            "each smaller than the minimum of 256 KiB."
        ),
        """
        def count_pieces(size, min_shard_bytes, max_shards):
            return -(-size // min_shard_bytes)
        """: "The table would be cut into 49 pieces. There are never more than max_shards.",
        """
        def count_pieces(size, min_shard_bytes, max_shards):
            return min(max_shards, size // min_shard_bytes + 1)
        """: "That rounds up too far: 512 KiB are exactly twice the minimum, so two pieces.",
        "def count_pieces(size, min_shard_bytes, max_shards):\n    return max_shards": (
            "A small variable stays whole: 98 KiB isn't cut."
        ),
    },
    otherwise="Divide, round up, and take max_shards if that's smaller.",
    cases=[
        (98 << 10, 256 << 10, 2),
        (392 << 10, 256 << 10, 2),
        (512 << 10, 256 << 10, 4),
        (784 << 10, 256 << 10, 8),
        (12_544 << 10, 256 << 10, 2),
    ],
)

MOVED = Turn(
    lesson="11",
    name="moved",
    answer="2 * 32 * 49 * 16 * 4 / 1024  # rows of 16 float32 numbers, there and back",
    right="The rows come to the worker, and gradients of the same size go back.",
    mistakes={
        "32 * 49 * 16 * 4 / 1024": "That's one way. The gradient of each row goes back to its server.",
        "2 * 200_704 * 16 * 4 / 1024": "That's the whole table. A batch touches 1,568 rows.",
        "2 * 32 * 16 * 4 / 1024": "That's one row for each image. An image has 49 tokens.",
        "2 * 32 * 49 * 16 / 1024": "That's numbers. A float32 has 4 bytes.",
    },
    otherwise="Rows × numbers in a row × bytes of a number, read and written, in KiB.",
    read=_leave_out_row_numbers,
)
