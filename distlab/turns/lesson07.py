"""Lesson 07: what mirroring sends, and options for the all-reduce across workers."""

from distlab.turns.turn import Turn

MIRRORED = Turn(
    lesson="07",
    name="mirrored",
    answer="""
        def sent_by_mirroring(replicas):  # in V
            return 2 * (replicas - 1)
    """,
    right="The replica that adds up has its own gradient already, and keeps its own sum.",
    mistakes={
        "def sent_by_mirroring(replicas):\n    return 2 * replicas": (
            "That's central storage. Here one of the replicas adds up, and sends itself nothing."
        ),
        "def sent_by_mirroring(replicas):\n    return replicas - 1": (
            "That's the gradients. The sum has to come back."
        ),
        "def sent_by_mirroring(replicas):\n    return 0": "The weights never travel, but gradients do.",
    },
    otherwise="Who sends a gradient, and who needs the sum? Each time it's V.",
    cases=[(1,), (2,), (3,), (8,)],
)

OPTIONS = Turn(
    lesson="07",
    name="options",
    answer="""
        tf.distribute.experimental.CommunicationOptions(
            implementation=tf.distribute.experimental.CommunicationImplementation.RING,
            bytes_per_pack=4 * 1024,
        )
    """,
    right="Both also apply to the all-reduce in the optimizer, if you give them to the strategy.",
    mistakes={
        "tf.distribute.experimental.CommunicationOptions(bytes_per_pack=4096)": (
            "That leaves the choice to TensorFlow (AUTO). Name the ring as the implementation."
        ),
        """
        tf.distribute.experimental.CommunicationOptions(
            implementation=tf.distribute.experimental.CommunicationImplementation.RING,
            bytes_per_pack=4,
        )
        """: "The size is in bytes. A pack of 4 bytes is one float32.",
        """
        tf.distribute.experimental.CommunicationOptions(
            implementation=tf.distribute.experimental.CommunicationImplementation.RING
        )
        """: "That's the ring, but with the default of 0 everything goes into one pack.",
    },
    otherwise="It takes implementation=…, and bytes_per_pack=… in bytes.",
    read=lambda options: [
        float(options.implementation.value == "RING"),
        float(options.implementation.value == "AUTO"),
        float(options.bytes_per_pack),
    ],
)
