"""Lesson 08: which task am I, and how many replicas to expect."""

from distlab.turns.turn import Turn

EXPECTED = Turn(
    lesson="08",
    name="expected",
    answer="3 * 4  # machines times GPUs",
    right="One worker on each machine, one replica on each GPU, and all of them count.",
    mistakes={
        "3": "That's the number of workers. Each has four replicas.",
        "4": "That's one worker's. It's what you see if a machine trains alone.",
        "1": "That's what you see if TF_CONFIG is missing and there's one device.",
    },
    otherwise="A replica is one device's copy of the model. How many devices are there in all?",
)

INDEX = Turn(
    lesson="08",
    name="index",
    answer="""
        def find_index(workers, host):
            return [address.split(":")[0] for address in workers].index(host)
    """,
    right="The index is the place in the list, whatever the machine is called.",
    mistakes={
        """
        def find_index(workers, host):
            return [address.split(":")[0] for address in workers].index(host) + 1
        """: "This counts from 1, and TensorFlow from 0.",
        """
        def find_index(workers, host):
            return sorted(address.split(":")[0] for address in workers).index(host)
        """: "The list stays in its own order. Sorted as words, gpu10 comes before gpu9.",
        """
        def find_index(workers, host):
            return [address.startswith(host) for address in workers].index(True)
        """: "The address of gpu10 also begins with gpu1. Compare the name up to the colon.",
    },
    otherwise="The list is ['gpu9:12345', …]. Where in it is the address with this machine's name?",
    cases=[
        (["gpu9:12345", "gpu10:12345", "gpu1:12345"], "gpu9"),
        (["gpu9:12345", "gpu10:12345", "gpu1:12345"], "gpu1"),
        (["node-a:12345", "node-b:12345"], "node-b"),
    ],
)
