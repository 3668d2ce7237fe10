"""Draw how a global batch is cut: over workers, then over each worker's replicas."""

from itertools import pairwise

from distlab.figures import canvas
from distlab.figures.canvas import SMALL_PX, WIDTH_PX, Sheet, text_width_px
from distlab.figures.picture import INK, Picture
from utils.checks import check_count
from utils.data.shares import split_batch
from utils.measure import count

MAX_WORKERS_DRAWN = 8
UNEVEN = "A thick edge marks the larger shares."
BATCH_Y, WORKER_Y, REPLICA_Y = 62, 150, 222


def split_evenly(examples: int, parts: int) -> list[int]:
    """Cut `examples` into nearly equal `parts`: the first get one more.

    tf.distribute cuts a full batch like this under the policies FILE and OFF. Data in memory and
    policy DATA follow `utils.data.split_batch`, which gives [17, 17, 17, 15] for 66 over 4.
    `split_evenly(66, 4)` is [17, 17, 16, 16]; `split_evenly(2, 4)` is [1, 1, 0, 0].
    Raises InputError for fewer than 0 examples or fewer than 1 part.
    """
    each, more = divmod(check_count("examples", examples, 0), check_count("parts", parts))
    return [each + (i < more) for i in range(parts)]


def batch_split(global_batch_size: int, workers: int, replicas_per_worker: int) -> Picture:
    """Draw one global batch cut into a piece for each worker, and those for each replica.

    1,024 over 4 workers of 4 replicas is 256 and 64. Shares are rounded up until the
    examples run out (`split_batch`), and workers take turns, as in TensorFlow under
    policy DATA: 10 over 2 workers of 4 replicas is [2, 2, 2, 0] and [2, 2, 0, 0]. Larger
    shares have a thick edge, empty ones a dashed edge. Of more than eight workers the
    first six and the last are drawn. Raises InputError for sizes below 1.
    """
    check_count("global batch size", global_batch_size)
    check_count("workers", workers)
    check_count("replicas per worker", replicas_per_worker)
    sizes = split_batch(global_batch_size, workers * replicas_per_worker)
    pieces = [sizes[worker::workers] for worker in range(workers)]
    uneven = len({size for replicas in pieces for size in replicas}) > 1
    title = "One step: the global batch, cut for workers and replicas"

    def paint(sheet: Sheet) -> None:
        words = f"global batch: {count(global_batch_size, 'example')}"
        _draw_piece(sheet, 0, WIDTH_PX, BATCH_Y - 22, 40, words, INK, 0.06)
        _draw_workers(sheet, pieces)
        if uneven:
            sheet.write(WIDTH_PX / 2, 288, UNEVEN, size=SMALL_PX)

    alt = _describe_cut(global_batch_size, pieces)
    chart = {"kind": "cut", "pieces": pieces, "uneven": UNEVEN if uneven else ""}
    height_px = 302 if uneven else 280
    return canvas.draw_sheet(paint, title=title, alt=alt, height_px=height_px, chart=chart)


def _draw_workers(sheet: Sheet, pieces: list[list[int]]) -> None:
    shown: list[int | None] = list(range(len(pieces)))
    if len(pieces) > MAX_WORKERS_DRAWN:
        shown = [*range(6), None, len(pieces) - 1]
    gap = 14.0
    wide = (WIDTH_PX - gap * (len(shown) - 1)) / len(shown)
    most = max(max(replicas) for replicas in pieces)
    least = min(min(replicas) for replicas in pieces)
    for place, worker in enumerate(shown):
        x = place * (wide + gap)
        if worker is None:
            sheet.write(x + wide / 2, WORKER_Y, "…", size=22)
            continue
        color = canvas.COLORS[worker % len(canvas.COLORS)]
        _draw_worker(sheet, x, wide, worker, pieces[worker], color, (least, most))


def _draw_worker(sheet: Sheet, x, wide, worker: int, replicas: list[int], color, extremes) -> None:
    sheet.line([x + wide / 2] * 2, [BATCH_Y + 20, WORKER_Y - 35], linewidth=1, alpha=0.5)
    label = _fitting((f"worker {worker}", f"w{worker}", ""), wide)
    sheet.write(x + wide / 2, WORKER_Y - 26, label)
    _draw_piece(sheet, x, wide, WORKER_Y - 16, 38, f"{sum(replicas):,}", color, 0.38)
    step = wide / len(replicas)
    inset = 2.0 if step > 14 else 0.5
    for i, size in enumerate(replicas):
        at = x + i * step
        ends = [WORKER_Y + 22, REPLICA_Y - 16]
        sheet.line([at + step / 2] * 2, ends, color, linewidth=1, alpha=0.7)
        more = size == extremes[1] > extremes[0]
        text = _fitting((f"{size:,}", ""), step - 2 * inset)
        _draw_piece(
            sheet,
            at + inset,
            step - 2 * inset,
            REPLICA_Y - 16,
            32,
            text,
            color,
            0.2 if size else 0.0,
            more=more,
            empty=size == 0,
        )
    each, few = _say_sizes(replicas), count(len(replicas), "replica")
    note = _fitting((f"{few}: {each}", f"{len(replicas)} × {each}", each, ""), wide + 10, SMALL_PX)
    sheet.write(x + wide / 2, REPLICA_Y + 32, note, size=SMALL_PX)


def _draw_piece(
    sheet: Sheet, x, wide, y, tall, text, color, strength, more=False, empty=False
) -> None:
    from matplotlib.patches import FancyBboxPatch

    patch = FancyBboxPatch(
        (x + 2, y + 2),
        max(wide - 4, 0.5),
        tall - 4,
        boxstyle="round,pad=2,rounding_size=3",
        facecolor=canvas.tinted(color, strength),
        edgecolor=INK if more else color,
        linewidth=2.4 if more else 1.2,
        linestyle=(0, (3, 2)) if empty else "-",
    )
    sheet.axes.add_patch(patch)
    sheet.write(x + wide / 2, y + tall / 2, text, weight="bold" if more else "normal")


def _fitting(texts: tuple[str, ...], room_px: float, size_px: float = canvas.TEXT_PX) -> str:
    """Return the first of `texts` that fits into `room_px`."""
    return next((text for text in texts if text_width_px(text, size_px) <= room_px), "")


def _say_sizes(sizes: list[int]) -> str:
    """Return the sizes of replicas in words: "64 each" or "17, 17, 17, 15"."""
    if len(set(sizes)) == 1:
        return f"{sizes[0]:,} each" if len(sizes) > 1 else f"{sizes[0]:,}"
    if len(sizes) <= 8:
        return ", ".join(f"{size:,}" for size in sizes)
    runs = [0, *(i for i, (a, b) in enumerate(pairwise(sizes), 1) if a != b), len(sizes)]
    return ", ".join(f"{b - a} of {sizes[a]:,}" for a, b in pairwise(runs))


def _describe_cut(global_batch_size: int, pieces: list[list[int]]) -> str:
    totals = [sum(replicas) for replicas in pieces]
    start = f"A global batch of {count(global_batch_size, 'example')} cut"
    if len(pieces) == 1:
        return (
            f"{start} for {count(len(pieces[0]), 'replica')} of 1 worker: {_say_sizes(pieces[0])}."
        )
    per_worker = f"{start} for {count(len(pieces), 'worker')} ({_say_sizes(totals)})"
    if all(replicas == pieces[0] for replicas in pieces):
        few = count(len(pieces[0]), "replica")
        return f"{per_worker}, then for {few} of each worker ({_say_sizes(pieces[0])})."
    sizes = [size for replicas in pieces for size in replicas]
    return f"{per_worker}, then for {count(len(sizes), 'replica')} ({_say_sizes(sizes)})."
