"""A run of a Transformer, planned: the best layouts of all, hours, cost, MFU, and why.

    from utils.simulate.planner import Run

    run = Run(parameters=7e9, layers=32, hidden=4096, sequence=4096, vocabulary=50_000,
              tokens=1e12, price=3)
    plan = run.plan("64 H100, 8 a node, 400Gb/s")
    plan.best[0].layout, plan.find_hours(plan.best[0]), plan.explain()

`cost_layout` says what one layout takes; here every layout that divides the model is tried. NumPy
at most.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ..checks import check_count, check_number
from ..errors import InputError
from .failures import best_effective_time
from .layouts import AXES, USUAL, Assumed, Layout, LayoutCost, cost_layout
from .machines import Machine, find_machine
from .memory import DeviceMemory
from .transformer import Transformer, make_transformer
from .units import ask, format_seconds

USUAL_BATCH_TOKENS = 4 * 2**20  # tokens of a step: Touvron et al. 2023, "Llama 2", table 1: 4M
MAX_DEVICES, MAX_LAYOUTS = 2**17, 200_000
SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class Run:
    """Plan the training of a Transformer from its shape.

    A missing shape is derived from the parameters. `global_batch` counts sequences.
    """

    parameters: float = ask("large", "a Transformer by its shape, such as 7e9")
    layers: int | None = ask("whole", "layers of the Transformer", None)
    hidden: int | None = ask("whole", "width of a layer", None)
    sequence: int | None = ask("whole", "tokens in a sequence [2048]", None)
    vocabulary: int | None = ask("large", "size of the vocabulary [50000]", None)
    experts: int = ask("whole", "experts in a layer", 1)
    active_experts: int = ask("whole", "experts that each token visits", 1)
    tokens: float | None = ask("number", "tokens to train on, for hours and cost", None)
    global_batch: int | None = ask("whole", "sequences in a step [about 4 million tokens]", None)
    scores: bool = ask("flag", "keep attention's s^2 scores (no FlashAttention)", False)
    price: float | None = ask("number", "price of a device-hour", None)
    node_mtbf_hours: float | None = ask("number", "time between a node's failures", None)
    checkpoint_seconds: float = ask("number", "seconds to save once", 60.0)
    restart_seconds: float = ask("number", "seconds to restart after a failure", 300.0)

    @property
    def model(self) -> Transformer:
        names = ("layers", "hidden", "sequence", "vocabulary", "experts", "active_experts")
        return make_transformer(self.parameters, **{name: getattr(self, name) for name in names})

    def plan(
        self, machine: Machine | str, devices: int | None = None, layout: Layout | None = None
    ) -> "RunPlan":
        """Return the quickest layouts that fit, one for each cut, or the `layout` that you name.

        `devices` is the machine's number if left out. Raises InputError, in one line, if nothing
        fits (with the cheapest change for a named layout), and for a layout of another size.
        """
        for name in ("tokens", "node_mtbf_hours"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), above=0)
        if self.price is not None:
            check_number("price", self.price, least=0)
        machine = find_machine(machine) if isinstance(machine, str) else machine
        devices = (machine.count or 1) if devices is None else devices
        check_count("devices", devices, 1, MAX_DEVICES)
        model, assumed, batch = self.model, Assumed(scores=self.scores), self.global_batch
        batch = (
            choose_batch(model, devices) if batch is None else check_count("global_batch", batch)
        )
        search = _cost_named if layout else _search
        best, tried, fitting = search(model, machine, devices, batch, assumed, layout)
        return RunPlan(self, model, machine, devices, batch, best, tried, fitting)

    def find_effective_time(self, nodes: int) -> float:
        """Return the share of time that trains; 1 if failures aren't described."""
        if not self.node_mtbf_hours:
            return 1.0
        mtbf = self.node_mtbf_hours * 3600 / nodes
        return best_effective_time(self.checkpoint_seconds, mtbf, self.restart_seconds)


@dataclass(frozen=True)
class RunPlan:
    """Layouts of one run, quickest first. `tried` counts all of them, `fitting` those that fit."""

    run: Run
    model: Transformer
    machine: Machine
    devices: int
    global_batch: int
    best: tuple[LayoutCost, ...]
    tried: int
    fitting: int

    @property
    def tokens_per_step(self) -> int:
        return self.global_batch * self.model.sequence

    @property
    def effective_time(self) -> float:
        return self.run.find_effective_time(math.ceil(self.devices / self.machine.ranks_per_node))

    def find_mfu(self, cost: LayoutCost) -> float:
        """Return the FLOPs that the model needs over what the devices could do in a step.

        Chowdhery et al. 2022, "PaLM", appendix B: 6 N + 12 layers hidden sequence per token;
        recomputation doesn't count.
        """
        needed = self.model.flops_per_token + self.model.attention_flops_per_token
        done = cost.step_seconds * self.devices * self.machine.peak_flops
        return needed * self.tokens_per_step / done

    def find_hours(self, cost: LayoutCost) -> float | None:
        """Return the hours of the whole run, failures included; None without tokens."""
        if self.run.tokens is None:
            return None
        seconds = self.run.tokens / self.tokens_per_step * cost.step_seconds
        return seconds / self.effective_time / 3600

    def find_cost(self, cost: LayoutCost) -> float | None:
        """Return hours x devices x price; None without tokens or price."""
        if self.run.tokens is None or self.run.price is None:
            return None
        return self.find_hours(cost) * self.devices * self.run.price

    def tabulate(self) -> list[dict[str, Any]]:
        """Return the best layouts as plain data, ready for JSON."""
        return [describe_cost(self, cost) for cost in self.best]

    def explain(self) -> list[tuple[str, str, str]]:
        """Return (name, value, reason) for each number of the best layout."""
        return list(_explain(self, self.best[0]))


def choose_batch(model: Transformer, devices: int) -> int:
    """Return the sequences of about 4 million tokens, as many for each device."""
    return max(1, round(USUAL_BATCH_TOKENS / model.sequence / devices)) * devices


def _cost_named(
    model: Transformer, machine: Machine, devices: int, batch: int, assumed: Assumed, layout: Layout
) -> tuple[tuple[LayoutCost, ...], int, int]:
    if layout.devices != devices:
        raise InputError(
            f"layout {layout}: data x tensor x pipeline x context is {layout.devices:,}, and there "
            f"are {devices:,} devices. Make the product {devices:,}."
        )
    cost = cost_layout(model, layout, machine, batch, assumed)
    if not cost.fits:
        raise InputError(describe_overflow(model, cost, machine, batch, assumed))
    return (cost,), 1, 1


def describe_overflow(
    model: Transformer, cost: LayoutCost, machine: Machine, batch: int, assumed: Assumed = USUAL
) -> str:
    """Return what doesn't fit, and the change that costs the least time."""
    part = cost.overflow
    said = (
        f"layout {cost.layout}: needs {cost.memory.total / 1e9:,.0f} GB per device, {machine.name} "
        f"has {cost.capacity / 1e9:,.0f}. The largest part: {part}, "
        f"{getattr(cost.memory, part) / 1e9:,.0f} GB."
    )
    found = find_cheapest_change(model, cost.layout, machine, batch, assumed)
    if found is None:
        return f"{said} No single change makes it fit. Leave the layout out to try all."
    change, changed = found
    return f"{said} {change} makes it fit ({changed.memory.total / 1e9:,.0f} GB)."


def find_cheapest_change(
    model: Transformer, layout: Layout, machine: Machine, batch: int, assumed: Assumed = USUAL
) -> tuple[str, LayoutCost] | None:
    """Return the single change of `layout` that fits and costs least time; None if none does.

    Tried are smaller micro-batches (accumulation), recomputation, ZeRO 1 to 3, and more tensor,
    pipeline or context parallelism at the cost of data parallelism, in this order. The first one
    within 5 % of the quickest is returned, so that a run isn't cut where a switch would do.
    """
    changes = {
        f"Micro-batch {m}, accumulated,": replace(layout, micro_batch=m)
        for m in range(1, layout.micro_batch)
    }
    changes["Recomputation"] = replace(layout, recompute=True)
    for stage in range(layout.zero_stage + 1, 4 if layout.pipeline == 1 else 2):
        changes[f"ZeRO stage {stage}"] = replace(layout, zero_stage=stage)
    for axis in ("tensor", "pipeline", "context"):
        for more in (2, 4, 8, 16):
            if layout.data % more == 0 and not (axis == "pipeline" and layout.zero_stage > 1):
                cut = {"data": layout.data // more, axis: getattr(layout, axis) * more}
                if cut["data"] % layout.expert == 0:
                    named = f"{axis.capitalize()} parallelism over {cut[axis]}"
                    changes[named] = replace(layout, **cut)
    found = []
    for name, changed in changes.items():
        try:
            cost = cost_layout(model, changed, machine, batch, assumed)
        except InputError:
            continue  # it doesn't divide the model or the batch
        if cost.fits:
            found.append((name, cost))
    quickest = min((cost.step_seconds for _, cost in found), default=None)
    return next((pair for pair in found if pair[1].step_seconds <= 1.05 * quickest), None)


def list_layouts(
    model: Transformer, machine: Machine, devices: int, batch: int
) -> Iterator[Layout]:
    """Yield every layout of `devices` devices that divides the model and the batch, but for layers.

    Tensor parallelism stays inside a node (Narayanan et al. 2021, takeaway 1); ZeRO 2 and 3 don't
    go with a pipeline. Micro-batches are powers of two.
    """
    for tensor in list_divisors(math.gcd(devices, model.heads), machine.ranks_per_node):
        for pipeline in list_divisors(devices // tensor, model.layers):
            stages = range(4) if pipeline == 1 else range(2)
            for context in list_divisors(math.gcd(devices // tensor // pipeline, model.sequence)):
                data, rest = divmod(devices, tensor * pipeline * context)
                if rest or batch % data:
                    continue
                varied = itertools.product(
                    list_divisors(math.gcd(data, model.experts)),
                    stages if data * context > 1 else (0,),
                    [m for m in (2**k for k in range(12)) if batch // data % m == 0],
                    (False, True),
                )
                yield from (Layout(data, tensor, pipeline, context, *each) for each in varied)


def list_divisors(number: int, most: int = MAX_DEVICES) -> list[int]:
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return [d for d in sorted({*small, *(number // d for d in small)}) if d <= most]


def _search(
    model: Transformer, machine: Machine, devices: int, batch: int, assumed: Assumed, _: None
) -> tuple[tuple[LayoutCost, ...], int, int]:
    """Return the quickest layout of each cut, how many were tried, and how many fit."""
    best: dict[tuple[int, ...], LayoutCost] = {}
    tried, fitting, smallest = 0, 0, None
    for layout in itertools.islice(list_layouts(model, machine, devices, batch), MAX_LAYOUTS):
        tried += 1
        cost = cost_layout(model, layout, machine, batch, assumed)
        if not cost.fits:
            smallest = min(smallest or cost, cost, key=lambda each: each.memory.total)
            continue
        fitting += 1
        cut = tuple(getattr(layout, axis) for axis in (*AXES, "expert"))
        best[cut] = min(best.get(cut, cost), cost, key=lambda each: each.step_seconds)
    if not fitting:
        raise InputError(_describe_nothing(model, machine, devices, smallest))
    quickest = sorted(best.values(), key=lambda cost: cost.step_seconds)
    return tuple(quickest[:SHOWN]), tried, fitting


def _describe_nothing(
    model: Transformer, machine: Machine, devices: int, smallest: LayoutCost | None
) -> str:
    if smallest is None:
        return f"devices={devices:,}: no layout divides the model and the batch. Try a power of 2."
    part, needed = smallest.overflow, smallest.memory.total
    return (
        f"{model.parameters:.3g} parameters fit nowhere on {devices:,} {machine.name}. The "
        f"smallest layout ({smallest.layout}) needs {needed / 1e9:,.0f} GB per device of "
        f"{machine.memory_gb:g}. The largest part: {part}, "
        f"{getattr(smallest.memory, part) / 1e9:,.0f} GB. Use about "
        f"{math.ceil(needed / smallest.capacity) * devices:,} devices."
    )


def describe_cost(plan: RunPlan, cost: LayoutCost) -> dict[str, Any]:
    """Return one layout of a plan as plain data."""
    told = {"layout": str(cost.layout), **vars(cost.layout), "step_seconds": cost.step_seconds}
    told |= {"mfu": plan.find_mfu(cost), "bottleneck": cost.bottleneck, "parts": cost.parts}
    told |= {"hours": plan.find_hours(cost), "cost": plan.find_cost(cost)}
    return told | describe_memory(cost.memory)


def describe_memory(held: DeviceMemory) -> dict[str, Any]:
    """Return gigabytes: all, and by what they are for."""
    gigabytes = {name: value / 1e9 for name, value in vars(held).items()}
    return {"memory_gb": held.total / 1e9, "memory": gigabytes}


def tabulate_layouts(
    run: Run, device: str, network: str, sizes: tuple[int, ...]
) -> list[dict[str, Any]]:
    """Return, for each size and each way to cut, what takes least time: plain data.

    `network` is as in find_machine ("8x400Gb/s"). A way is the axes that are cut, such as
    "data, ZeRO 3" or "data, tensor, pipeline". A way that never fits has `fits` False, no step,
    and the memory of its smallest layout.
    """
    rows = []
    for size in sizes:
        machine, model = find_machine(f"{size} {device}, {network}"), run.model
        batch = run.global_batch or choose_batch(model, size)
        plan = RunPlan(run, model, machine, size, batch, (), 0, 0)
        ways: dict[str, list[LayoutCost]] = {}
        for layout in list_layouts(model, machine, size, batch):
            cost = cost_layout(model, layout, machine, batch, Assumed(scores=run.scores))
            ways.setdefault(name_way(layout), []).append(cost)
        rows += [{"devices": size, "way": way} | _pick(plan, costs) for way, costs in ways.items()]
    return rows


def name_way(layout: Layout) -> str:
    """Return the axes that a layout cuts; of data parallelism alone, with its ZeRO stage."""
    cut = [axis for axis in AXES if getattr(layout, axis) > 1]
    return f"data, ZeRO {layout.zero_stage}" if cut == ["data"] else ", ".join(cut) or "one device"


def _pick(plan: RunPlan, costs: list[LayoutCost]) -> dict[str, Any]:
    """Return the quickest of `costs` that fits, or the memory of the smallest."""
    fitting = [cost for cost in costs if cost.fits]
    if fitting:
        best = min(fitting, key=lambda cost: cost.step_seconds)
        return {"fits": True} | describe_cost(plan, best)
    held = min((cost.memory for cost in costs), key=lambda memory: memory.total)
    return {"fits": False, "step_seconds": None} | describe_memory(held)


def _explain(plan: RunPlan, cost: LayoutCost) -> Iterator[tuple[str, str, str]]:
    model, machine = plan.model, plan.machine
    for name in model.guessed:
        yield name, f"{getattr(model, name):,}", "not stated: taken from the parameters, or usual"
    flops = f"{model.flops_per_token:.3g} + {model.attention_flops_per_token:.3g}"
    yield (
        "FLOPs per token",
        flops,
        "6 N for the parameters, 12 layers hidden sequence for attention",
    )
    batch, each = f"{plan.global_batch:,} sequences", plan.global_batch // cost.layout.data
    reason = f"{plan.tokens_per_step:,} tokens a step, {each:,} sequences a copy"
    usual = "" if plan.run.global_batch else "; not stated: about 4 million tokens"
    yield "global batch", batch, reason + usual
    chosen = "yours" if plan.tried == 1 else "the planner's choice: the quickest that fits"
    yield "micro-batch", str(cost.layout.micro_batch), chosen
    for name, value in vars(cost.memory).items():
        yield f"{name}, memory", f"{value / 1e9:,.1f} GB", MEMORY_REASONS[name]
    reached = f"{machine.efficiency:.0%} of both peaks, attention {machine.attention:.1%}"
    yield "devices", f"{plan.devices:,} {machine.name}", f"{reached} ({machine.source})"
    for name, seconds in cost.parts.items():
        yield name, format_seconds(seconds), PART_REASONS[name]
    yield "step", format_seconds(cost.step_seconds), "the sum of these parts"
    yield "MFU", f"{plan.find_mfu(cost):.1%}", "the model's FLOPs over the devices' peak in a step"
    if plan.run.tokens is not None:
        steps = plan.run.tokens / plan.tokens_per_step
        reason = f"{steps:,.0f} steps; {plan.effective_time:.1%} of the time trains"
        yield "hours", f"{plan.find_hours(cost):,.1f}", reason


MEMORY_REASONS = {
    "weights": "2 bytes per parameter on a device; ZeRO shares them from stage 3",
    "gradients": "2 bytes per parameter on a device; ZeRO shares them from stage 2",
    "optimizer": "12 bytes per parameter (float32 copy, two averages); shared from stage 1",
    "activations": "32 bytes per token, layer and unit of width; 2 if recomputed",
}
PART_REASONS = {
    "computation": "FLOPs of products and attention, recomputation included",
    "memory traffic": "what operations read and write, and the weights for each micro-batch",
    "launches": "4 µs for each operation, unless its work takes longer",
    "data": "gradients and weights between data-parallel copies, what isn't hidden",
    "tensor": "two all-reduces a layer forward and two backward, none hidden",
    "context": "keys and values round the ring, beyond what attention hides",
    "expert": "all-to-all to the experts and back, none hidden",
    "pipeline": "activations and gradients to the neighboring stage",
    "bubble": "(stages - 1) micro-batches while a stage waits (1F1B, not interleaved)",
    "optimizer": "reads and writes the state once a step",
}
