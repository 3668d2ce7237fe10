"""Lesson 06: one step of the ring, and what recursive doubling costs."""

from distlab.turns.turn import Turn

SENT_CHUNK = Turn(
    lesson="06",
    name="sent chunk",
    answer="3",
    right="0 - 1 is -1, and before chunk 0 comes the last one.",
    mistakes={
        "0": "That was in turn 0. Now it sends on what it has just added to.",
        "1": "Chunks wander the other way: rank 0 received from its left neighbor, rank 3.",
        "-1": "The rule is right. Chunk numbers wrap around, so what comes before chunk 0?",
    },
    otherwise="In turn 0, rank 3 sent its chunk to rank 0. Which one was it?",
)

DOUBLING = Turn(
    lesson="06",
    name="doubling",
    answer="""
        def doubling_seconds(ranks, size, latency, bandwidth):
            return np.log2(ranks) * (latency + size / bandwidth)
    """,
    right="Few steps, each with the whole vector.",
    mistakes={
        """
        def doubling_seconds(ranks, size, latency, bandwidth):
            return (ranks - 1) * (latency + size / bandwidth)
        """: "The distance doubles in each step. So 16 ranks need 4 steps, not 15.",
        """
        def doubling_seconds(ranks, size, latency, bandwidth):
            return np.log2(ranks) * (latency + size / ranks / bandwidth)
        """: "That's a ring's chunk. Here every message carries the whole vector.",
        """
        def doubling_seconds(ranks, size, latency, bandwidth):
            return np.log2(ranks) * latency + size / bandwidth
        """: "Bytes are paid in each step as well, not once.",
    },
    otherwise="How many steps are there? And what does one message carry?",
    cases=[(2, 1e6, 1e-5, 1e9), (16, 1e3, 1e-5, 1e9), (16, 1e8, 1e-5, 1e9)],
)
