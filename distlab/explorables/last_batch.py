"""How the last, smaller batch of an epoch is cut, and what Keras's `fit` makes of it."""

from dataclasses import replace

import numpy as np

from distlab.explorables.controls import Slider
from distlab.explorables.explorer import Explorer, explore
from distlab.figures import Picture, grouped_bars, split_evenly
from distlab.figures.palette import REPLICA_IDEAS
from utils.data import split_batch


def last_batch_explorer(examples: int, replicas: int = 4, global_batch_size: int = 128) -> Explorer:
    """Show each replica's part of the last batch, by files and by data, for chosen sizes."""

    def show(replicas: int, global_batch_size: int) -> Picture:
        return show_last_batch(examples, replicas, global_batch_size)

    return explore(
        show,
        replicas=Slider("Replicas", 1, 6, replicas),
        global_batch_size=Slider("Global batch size", 16, 512, global_batch_size, 4),
    )


def cut_by_files(rest: int, full_sizes: list[int]) -> list[int]:
    """Return each replica's part of `rest` examples when the first are filled up first."""
    starts = np.cumsum([0, *full_sizes[:-1]])
    return [
        int(np.clip(rest - start, 0, size)) for start, size in zip(starts, full_sizes, strict=True)
    ]


def show_last_batch(examples: int, replicas: int, global_batch_size: int) -> Picture:
    """Return bars of the last batch's parts, by policy, and in words what plain `fit` does."""
    sizes = split_evenly(global_batch_size, replicas)  # of a full batch, under FILE
    full, rest = divmod(examples, global_batch_size)
    cuts = {"FILE": cut_by_files(rest, sizes), "DATA": split_batch(rest, replicas)}
    groups = {
        f"policy {name}": {f"replica {i}": n for i, n in enumerate(cut)}
        for name, cut in cuts.items()
    }
    words = f"{examples:,} = {full} × {global_batch_size} + {rest}. " + _say_what_fit_does(
        sizes, cuts, rest
    )
    title = f"The last batch of an epoch: {rest} examples"
    ideas = {f"replica {i}": REPLICA_IDEAS[i % len(REPLICA_IDEAS)] for i in range(replicas)}
    picture = grouped_bars(groups, unit="examples", title=title).with_ideas(ideas)
    return replace(picture, caption=words)


def _say_what_fit_does(sizes: list[int], cuts: dict[str, list[int]], rest: int) -> str:
    even = [name for name, cut in cuts.items() if len(set(cut)) == 1]
    if len(set(sizes)) > 1:
        return "A full batch doesn't divide by the replicas: plain fit stops in its first step."
    if rest == 0:
        return "Plain fit is exact."
    if len(even) == 2:
        return "Plain fit is exact with either policy."
    if even:
        return "With FILE plain fit fails or drifts; with DATA it is exact."
    idle = cuts["DATA"].count(0)
    ends = f"leaves {idle} without examples too" if idle else "isn't exact either"
    return f"With FILE plain fit fails or drifts, and DATA {ends}: drop the remainder, or pad."
