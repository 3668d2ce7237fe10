"""The batch explorer: one global batch, cut for workers and replicas."""

from dataclasses import replace

from distlab.explorables.controls import Slider
from distlab.explorables.explorer import Explorer, Try, explore
from distlab.figures import Picture, batch_split
from utils.data import split_batch


def batch_explorer(
    global_batch_size: int = 1024, workers: int = 4, replicas_per_worker: int = 4
) -> Explorer:
    """Show how a global batch is cut for the chosen workers and replicas, in a picture and words.

    Starts with 1,024 examples over 4 workers of 4 replicas: 256 and 64.
    """
    return explore(
        show_split,
        tries=_list_tries(),
        workers=Slider("Workers", 1, 16, workers, grid=(1, 2, 3, 4, 8, 16)),
        replicas_per_worker=Slider(
            "Replicas per worker", 1, 8, replicas_per_worker, grid=(1, 2, 4, 8)
        ),
        global_batch_size=Slider(
            "Global batch size",
            1,
            max(2048, global_batch_size),
            global_batch_size,
            grid=(15, 64, 100, 512, 1000, 1024, 2048),
        ),
    )


def _list_tries() -> list[Try]:
    start = {"workers": 4, "replicas_per_worker": 4, "global_batch_size": 1024}
    own, halved = (split_batch(1024, replicas)[0] for replicas in (16, 32))
    return [
        Try(
            "Twice the workers: what becomes of a share?",
            start,
            {"workers": 8},
            f"It shrinks from {own} examples to {halved}. The global batch stays the same.",
        ),
        Try(
            "How large must the batch be for the old shares?",
            start | {"workers": 8},
            {"global_batch_size": 32 * own},
            f"{32 * own:,}: 32 replicas with {own} examples each. The batch grows with them.",
        ),
        Try(
            "Fewer examples than replicas: what then?",
            start,
            {"global_batch_size": 15},
            explain_split(4, 4, 15),
        ),
    ]


def show_split(workers: int, replicas_per_worker: int, global_batch_size: int) -> Picture:
    """Return the picture of one cut, with the arithmetic as its caption."""
    picture = batch_split(global_batch_size, workers, replicas_per_worker)
    return replace(picture, caption=explain_split(workers, replicas_per_worker, global_batch_size))


def explain_split(workers: int, replicas_per_worker: int, global_batch_size: int) -> str:
    """Return the arithmetic of a cut in words, with what its remainder means."""
    replicas = workers * replicas_per_worker
    sizes = split_batch(global_batch_size, replicas)
    per_worker = sizes[0] * replicas_per_worker
    if len(set(sizes)) == 1:
        return (
            f"{global_batch_size:,} / {workers} = {per_worker:,} examples for each worker, and "
            f"{per_worker:,} / {replicas_per_worker} = {sizes[0]:,} for each replica."
        )
    says = (
        f"{global_batch_size:,} examples don't divide by {replicas} replicas. "
        f"Shares are rounded up to {max(sizes):,}"
    )
    last = min(size for size in sizes if size)
    says += f", and {last:,} left for one replica. " if last < max(sizes) else ". "
    if idle := sizes.count(0):
        have = "has" if idle == 1 else "have"
        return says + f"{idle} of the {replicas} replicas {have} nothing to do in this step."
    return says + "Dividing each replica's loss by its own count would weigh examples unequally."
