"""The scenes of lab 15 in shards: written to disk, and given out to workers."""

from pathlib import Path

import numpy as np

from utils.data.scenes import SceneSplit, load_scenes

SHARDS = 4


def write_shards(folder: str | Path, scenes: int = 6_000) -> None:
    """Draw training scenes into FOLDER/shard-0.npz to shard-3.npz, once.

    Shard k holds scenes k, k + 4, …: `images` and `masks`, uint8 [n, 64, 64].
    """
    if not Path(folder, f"shard-{SHARDS - 1}.npz").is_file():
        draw_shards(Path(folder), load_scenes().train.take(scenes))
    print(f"{scenes:,} scenes in {SHARDS} shards in the folder {Path(folder).name}")


def draw_shards(folder: Path, split: SceneSplit) -> None:
    """Draw the scenes of `split` into the shards of `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for shard in range(SHARDS):
        drawn = [split.draw(number) for number in range(shard, len(split), SHARDS)]
        images, masks = (np.stack(part) for part in zip(*drawn))
        np.savez(folder / f"shard-{shard}.npz", images=images, masks=masks)


def give_shards(data: Path, worker: int, workers: int) -> Path:
    """Return a folder with the shards that a worker has of those in `data`, and no others."""
    folder = data.with_name(f"{data.name}-{worker}-of-{workers}")
    folder.mkdir(exist_ok=True)
    for name in (f"shard-{shard}.npz" for shard in range(worker, SHARDS, workers)):
        if not (folder / name).exists():
            (folder / name).hardlink_to(data / name)
    return folder
