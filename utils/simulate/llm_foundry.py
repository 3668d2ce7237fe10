"""The runs of llm-foundry's benchmark page as the planner's input, and the fitted numbers.

`published/llm_foundry_2024.csv` has 49 of them. One row for each GPU type gives that type's
efficiency, which is in `machines.csv`; all others are predicted. NumPy at most.
"""

from dataclasses import replace

from .layouts import Assumed, Layout, cost_layout
from .machines import Machine, find_machine
from .published import read_table
from .transformer import Transformer


def read_foundry_row(row: dict) -> tuple[Transformer, Layout, Machine, int, Assumed]:
    """Return one row of llm_foundry_2024 as what `cost_layout` takes.

    Vocabulary: GPT-NeoX's 50,368. Composer's FSDP asks for a layer's weights after the backward
    pass of the layer before (its default, BACKWARD_POST): no prefetch. The page doesn't say what
    joins its H100s: we take a DGX H100's eight links of 400 Gb/s.
    """
    network = "1600Gb/s" if row["system"].startswith("A100") else "8x400Gb/s"
    machine = find_machine(f"{row['system'].removesuffix('-80G')}, {network}")
    size = {name: int(row[name]) for name in ("layers", "hidden", "sequence")}
    model = Transformer(row["parameters"], **size, vocabulary=50_368)
    layout = Layout(
        data=int(row["gpus"]),
        zero_stage=3 if row["sharding"] == "FULL_SHARD" else 2,
        micro_batch=int(row["micro_batch"]),
        recompute=row["recompute"] == "yes",
    )
    assumed = Assumed(reduced_bytes=2 if row["precision"] == "bf16" else 4)
    return (
        model,
        layout,
        machine,
        int(row["gpus"] * row["micro_batch"] * row["accumulation"]),
        assumed,
    )


def predict_foundry(row: dict, efficiency: float | None = None) -> float:
    """Return the predicted MFU of a row of llm_foundry_2024, in percent; 0 if it doesn't fit."""
    model, layout, machine, batch, assumed = read_foundry_row(row)
    if efficiency is not None:
        machine = replace(machine, efficiency=efficiency)
    seconds = cost_layout(model, layout, machine, batch, assumed).step_seconds
    if seconds is None:
        return 0.0
    flops = model.flops_per_token + model.attention_flops_per_token
    return 100 * batch * model.sequence * flops / (seconds * layout.devices * machine.peak_flops)


def find_fitted_row(gpu: str) -> dict:
    """Return the row that a GPU type's efficiency is fitted on: 1b, 2,048 tokens, 8 GPUs, 80 GB."""
    wanted = {"system": f"{gpu}-80G", "model": "1b", "sequence": 2048, "gpus": 8}
    rows = read_table("llm_foundry_2024")
    return next(row for row in rows if all(row[key] == value for key, value in wanted.items()))
