"""Pictures of published runs and the simulators' predictions, each with its citation."""

import numpy as np

from distlab import figures
from utils.simulate.comparisons import COMPARISONS, Compared
from utils.simulate.published import read_source

MAX_BARS = 8
UNITS = {
    "zero_bubble_2023: bubbles": " bubble rate",
    "zero_bubble_2023: samples a second": "x",
    "gpipe_table3_2019": "x",
    "tf_benchmarks_2017": "x",
    "tf_benchmarks_2017: several machines": " images/s",
    "lamb_bert_weak_scaling": " min",
    "nccl_allreduce_p4de": " µs",
    "nccl_allreduce_p4de: as a table": " µs",
    "h200_ring_busbw": " GB/s",
    "megatron_2021_table1: parameters": " billion",
    "zero_memory": " GB",
    "llama3_2024": "",
    "llm_foundry_2024": " % MFU",
}


def show_published(name: str) -> list[Compared]:
    """Draw the comparison `name` of `COMPARISONS` with its source below; return its rows."""
    rows = COMPARISONS[name]()
    table = name.partition(":")[0]
    caption = f"{describe_errors(rows)} Source: {read_source(table)}"
    if len(rows) > MAX_BARS:
        figures.show(draw_scatter(name, rows), caption=caption)
    else:
        figures.show(draw_bars(name, rows), caption=caption)
    return rows


def describe_errors(rows: list[Compared]) -> str:
    """Return how far off the predictions are, in a sentence; those only shown apart."""
    held = [abs(row.error) for row in rows if row.tolerance is not None]
    shown = [abs(row.error) for row in rows if row.tolerance is None]
    said = []
    if held:
        said.append(f"{len(held)} predictions, at most {100 * max(held):.2g} % off.")
    if shown:
        said.append(f"{len(shown)} shown only, at most {100 * max(shown):.2g} % off.")
    return " ".join(said)


def draw_bars(name: str, rows: list[Compared]):
    """Return published and predicted as bars, one group for each row."""
    groups = {r.label: {"published": r.published, "predicted": r.predicted} for r in rows}
    return figures.grouped_bars(groups, unit=UNITS[name].strip(), title=say_title(name))


def draw_scatter(name: str, rows: list[Compared]):
    """Return both as lines over the rows, in the order of the published numbers."""
    ordered = sorted(rows, key=lambda row: row.published)
    place = np.arange(1, len(ordered) + 1)
    unit = UNITS[name].strip()
    spread = ordered[-1].published / max(ordered[0].published, 1e-9)
    return figures.lines(
        {
            "published": (place, [row.published for row in ordered]),
            "predicted": (place, [row.predicted for row in ordered]),
        },
        x_label="rows of the table, sorted by the published value",
        y_label={"": "value", "x": "times as fast"}.get(unit, unit),
        title=say_title(name),
        log_y=spread > 20,
    )


def say_title(name: str) -> str:
    table, _, part = name.partition(": ")
    words = {
        "zero_bubble_2023": "Zero Bubble pipelines",
        "gpipe_table3_2019": "GPipe, throughput",
        "tf_benchmarks_2017": "TensorFlow on 8 and 16 GPUs, speed-up",
        "lamb_bert_weak_scaling": "LAMB, minutes on 64 and 128 TPU chips",
        "nccl_allreduce_p4de": "nccl-tests on 16 A100s, time by bytes",
        "h200_ring_busbw": "H200 ring, bus bandwidth",
        "megatron_2021_table1": "Megatron-LM",
        "zero_memory": "ZeRO, memory of a device",
        "llama3_2024": "Llama 3, share of time that trains",
        "llm_foundry_2024": "MPT models on A100s and H100s, MFU",
    }
    return words[table] + (f": {part}" if part else "")
