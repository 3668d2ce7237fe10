"""What `tune` may set in a pipeline, as plain data. Imports no TensorFlow."""

from dataclasses import dataclass

AUTOTUNE = -1  # tf.data.AUTOTUNE


@dataclass(frozen=True)
class Settings:
    """Changes to a chain of stages; the default leaves it as it is written.

    `read_calls`: shards read at the same time. `map_calls`: calls of each map at
    the same time (-1: AUTOTUNE). `batch_first`: maps with a batch form run on whole
    batches. `cache_after`: the name of the stage whose results are kept in memory.
    `prefetch`: batches made ahead of the step (-1: AUTOTUNE).
    """

    read_calls: int = 0
    map_calls: int = 0
    batch_first: bool = False
    cache_after: str = ""
    prefetch: int = 0

    def changes(self) -> list[str]:
        """Return the settings that differ from the default, in words."""
        words = {
            "read_calls": f"{_say(self.read_calls)} shards read at once",
            "map_calls": f"{_say(self.map_calls)} calls of each map at once",
            "batch_first": "whole batches in the maps",
            "cache_after": f"cache after {self.cache_after}",
            "prefetch": f"prefetch {_say(self.prefetch)}",
        }
        return [text for name, text in words.items() if getattr(self, name)]


def _say(number: int) -> str:
    return "AUTOTUNE" if number == AUTOTUNE else str(number)
