"""One training step of a Transformer on many devices, cut in any of six ways: memory and seconds.

    from utils.simulate.layouts import Layout, cost_layout

    cost = cost_layout(model, Layout(data=8, tensor=8, zero_stage=1), machine, batch=1024)
    cost.memory.total, cost.step_seconds, cost.parts, cost.bottleneck

**Memory first.** ZeRO's stages (Rajbhandari et al. 2020) over data x context ranks, of what
tensor, pipeline and expert parallelism leave on a device; activations by Korthikanti et al. 2022;
with stage 3, two layers' gathered weights and one layer's gradient. Nothing is timed that
doesn't fit.

**Three regimes on a device.** Matrix products and attention take FLOPs over a fraction of the
peak. Every operation's bytes take time at the same fraction of the memory's rate, and so do the
weights once per pass, which is what small micro-batches lose. A launch takes 4 µs, so a step that
computes less than it launches takes its launches. (The serial sum of FLOPs and bytes is the
pessimistic roofline of Williams et al. 2009: nothing of one operation hides behind another.)

**Communication.** Rings, on the link that `Machine.find_link` gives: an all-reduce of n bytes over
g ranks takes 2(g-1)/g n over the rate and 2 log2 g latencies (a tree's; Sanders et al. 2009), a
gather or a scatter (g-1)/g n and g-1 latencies.

| axis | what crosses, for each micro-batch | hidden |
|---|---|---|
| data | float32 gradients once a step, in buckets (Li et al. 2020) | behind the last backward |
| ZeRO 1 | the same as reduce-scatter; then the new weights | the reduce-scatter |
| ZeRO 2 | a reduce-scatter for each micro-batch; then the new weights | the reduce-scatter |
| ZeRO 3 | weights twice, gradients once | weights of the forward pass; with `prefetch` all |
| tensor | 4 all-reduces a layer (Shoeybi et al. 2019), 2 more to recompute | none |
| context | keys and values g-1 times round, twice that backward (Liu et al. 2023) | attention |
| expert | 4 all-to-alls a layer (Lepikhin et al. 2020, GShard) | none |
| pipeline | activations and gradients; bubble (p-1)/m (Narayanan et al. 2021) | none |

The pipeline runs 1F1B. Interleaved stages, which divide the bubble, aren't modeled, so deep
pipelines with few micro-batches come out too slow: 35 % MFU for Llama 3's 405 billion parameters
on 8,192 H100s (data 64 x tensor 8 x pipeline 16, 8 x 400 Gb/s a node), where 43 % were reached.

Tensor parallelism comes with sequence parallelism: the all-reduces are then gathers and
scatters, which carry the same bytes, and norms are split too (Korthikanti et al.).

NumPy at most. Costs about 50 µs a layout.
"""

import math
from dataclasses import dataclass

from ..checks import check_count
from ..errors import InputError
from .collective import Link
from .machines import Machine
from .memory import DeviceMemory, ParameterBytes, find_zero_memory
from .step import BUCKET_BYTES
from .transformer import (
    BACKWARD_BYTES,
    FORWARD_BYTES,
    LAYER_OPERATIONS,
    LOGIT_BYTES,
    LOGIT_TRAFFIC,
    Transformer,
    find_kept_bytes,
)

LAUNCH_SECONDS = 4e-6  # assumed: the middle of the 3 to 5 µs that launching a kernel takes
NUMBER_BYTES = 2
AXES = ("data", "tensor", "pipeline", "context")


@dataclass(frozen=True)
class Layout:
    """A layout: the number of devices of each axis, and how a step runs on them.

    `expert` devices of the data axis share the experts. Raises InputError for counts below 1,
    and for a combination that no framework runs.
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    zero_stage: int = 0
    micro_batch: int = 1
    recompute: bool = False

    def __post_init__(self) -> None:
        for name in (*AXES, "expert", "micro_batch"):
            check_count(name, getattr(self, name))
        check_count("zero_stage", self.zero_stage, 0, 3)
        if self.data % self.expert:
            raise InputError(f"expert={self.expert} must divide data={self.data}.")
        if self.pipeline > 1 and self.zero_stage > 1:
            raise InputError(
                f"zero_stage={self.zero_stage} doesn't go with pipeline={self.pipeline}: gradients "
                "and weights would cross for every micro-batch. Use zero_stage 0 or 1."
            )

    @property
    def devices(self) -> int:
        return self.data * self.tensor * self.pipeline * self.context

    @property
    def shards(self) -> int:
        """Ranks over which ZeRO shares: they hold the same weights and see other tokens."""
        return self.data * self.context

    def __str__(self) -> str:
        axes = (*AXES, "expert")
        cut = [f"{name} {getattr(self, name)}" for name in axes if getattr(self, name) > 1]
        rest = [f"ZeRO {self.zero_stage}"] * (self.zero_stage > 0)
        rest += [f"micro-batch {self.micro_batch}", *["recompute"] * self.recompute]
        return f"{' x '.join(cut) or 'one device'}, {', '.join(rest)}"


SHORT = {"zero": "zero_stage", "micro-batch": "micro_batch"}


def parse_layout(text: str) -> Layout:
    """Return the layout in "data=8,tensor=8,zero=1,micro-batch=2,recompute".

    Raises InputError, in one line, for any other text.
    """
    told: dict[str, int | bool] = {}
    for part in text.replace(" ", "").split(","):
        name, equals, value = part.partition("=")
        name = SHORT.get(name, name)
        if name == "recompute" and not equals:
            told[name] = True
        elif name in (*AXES, "expert", *SHORT.values()) and value.isdecimal():
            told[name] = int(value)
        else:
            raise InputError(
                f"layout {text!r}: {part!r} is unknown. Write data=8,tensor=8,zero=1,micro-batch=2,"
                "recompute."
            )
    return Layout(**told)


@dataclass(frozen=True)
class Assumed:
    """Assumptions about a step, unless you say otherwise.

    `scores` keeps attention's s^2 scores, as without FlashAttention. `prefetch` hides ZeRO 3's
    traffic of the backward pass too (FSDP's BACKWARD_PRE). `reduced_bytes` is the size of one
    gradient on the wire.
    """

    each: ParameterBytes = ParameterBytes()
    reduced_bytes: float = 4
    scores: bool = False
    prefetch: bool = False


USUAL = Assumed()


@dataclass(frozen=True)
class LayoutCost:
    """A layout's bytes on the fullest device, and its step; no seconds if it doesn't fit.

    `parts` are the seconds of a step by what they go to: computation, memory traffic, launches,
    each axis's exposed communication, bubble, optimizer.
    """

    layout: Layout
    memory: DeviceMemory
    capacity: float
    parts: dict[str, float]

    @property
    def fits(self) -> bool:
        return self.memory.total <= self.capacity

    @property
    def step_seconds(self) -> float | None:
        return sum(self.parts.values()) if self.parts else None

    @property
    def bottleneck(self) -> str:
        """The largest part of the step, or "memory" for a layout that doesn't fit."""
        return max(self.parts, key=self.parts.get) if self.parts else "memory"

    @property
    def overflow(self) -> str:
        """The largest part of memory: what to make smaller first."""
        names = ("weights", "gradients", "optimizer", "activations")
        return max(names, key=lambda name: getattr(self.memory, name))


def cost_layout(
    model: Transformer, layout: Layout, machine: Machine, batch: int, assumed: Assumed = USUAL
) -> LayoutCost:
    """Return the memory and, if it fits, the step of `batch` sequences over all devices.

    Raises InputError if the layout doesn't divide the model or the batch, and if nothing is known
    of a link that it needs.
    """
    check_layout(model, layout, batch)
    micro_batches = batch // (layout.data * layout.micro_batch)
    held = find_layout_memory(model, layout, micro_batches, assumed)
    capacity = machine.memory_gb * 1e9
    parts = {}
    if held.total <= capacity:
        parts = _Step(model, layout, machine, micro_batches, assumed).find_parts()
    return LayoutCost(layout, held, capacity, parts)


def check_layout(model: Transformer, layout: Layout, batch: int) -> None:
    """Raise InputError, in one line, unless `layout` divides the model and the batch.

    Only the layers needn't divide evenly: the fullest stage then sets the pace.
    """
    for whole, name, axis in (
        (model.heads, "heads", "tensor"),
        (model.sequence, "sequence", "context"),
        (model.experts, "experts", "expert"),
    ):
        if whole % getattr(layout, axis):
            raise InputError(f"{axis}={getattr(layout, axis)} must divide the {whole:,} {name}.")
    if layout.pipeline > model.layers:
        raise InputError(
            f"pipeline must be at most the {model.layers:,} layers, got {layout.pipeline}."
        )
    together = layout.data * layout.micro_batch
    if batch % together:
        raise InputError(
            f"global_batch={batch:,} must be divisible by data x micro_batch ({together:,})."
        )


def count_stage_layers(model: Transformer, layout: Layout) -> int:
    """Return the layers of the fullest pipeline stage."""
    return math.ceil(model.layers / layout.pipeline)


def count_parameters(model: Transformer, layout: Layout) -> tuple[float, float]:
    """Return the parameters on one device: of all but split experts, and of split experts."""
    cut = layout.tensor * model.layers / count_stage_layers(model, layout)
    experts = model.expert_parameters if layout.expert > 1 else 0.0
    return (model.parameters - experts) / cut, experts / cut / layout.expert


def find_layout_memory(
    model: Transformer, layout: Layout, micro_batches: int, assumed: Assumed = USUAL
) -> DeviceMemory:
    """Return the bytes on the fullest device: the first pipeline stage's, or the last one's.

    Under 1F1B stage k of p keeps min(p - k, micro-batches) of them at once. The last keeps one and
    its logits. If p doesn't divide the layers, the first stage has one less (Llama Team 2024, "The
    Llama 3 Herd of Models", section 3.3.2). Recomputation keeps each layer's input, and all of one.
    """
    dense, experts = count_parameters(model, layout)
    held = find_zero_memory(dense, layout.shards, layout.zero_stage, assumed.each)
    parts = [held.weights, held.gradients, held.optimizer]
    if experts:
        ranks = layout.shards // layout.expert
        more = find_zero_memory(experts, ranks, layout.zero_stage, assumed.each)
        parts = [a + b for a, b in zip(parts, (more.weights, more.gradients, more.optimizer))]
    layers = count_stage_layers(model, layout)
    if layout.zero_stage == 3 and layout.shards > 1:
        one_layer = (dense + experts) / layers
        parts[0] += min(2, layers) * NUMBER_BYTES * one_layer
        parts[1] += assumed.reduced_bytes * one_layer
    tokens = layout.micro_batch * model.sequence / layout.context
    one = find_kept_bytes(model, tokens, tensor=layout.tensor, scores=assumed.scores)
    kept, again = one, 0.0  # of a layer, and once
    if layout.recompute:
        kept, again = NUMBER_BYTES * tokens * model.hidden / layout.tensor, one
    in_flight = [(layers, 1), (model.layers // layout.pipeline, layout.pipeline)]  # last, first
    if layout.pipeline > 1:
        in_flight.append((layers, layout.pipeline - 1))
    last, *others = (count * min(most, micro_batches) * kept for count, most in in_flight)
    logits = LOGIT_BYTES * model.vocabulary * tokens / layout.tensor
    return DeviceMemory(*parts, max(last + logits, *others) + again)


def gather_seconds(link: Link, size: int, payload_bytes: float) -> float:
    """Return a ring's all-gather or reduce-scatter of `payload_bytes` over `size` ranks."""
    sent = (size - 1) / size * payload_bytes
    return (size - 1) * link.latency_seconds + sent / link.bandwidth_bytes_per_second


def all_reduce_seconds(link: Link, size: int, payload_bytes: float) -> float:
    """Return an all-reduce: a ring's bytes, and 2 log2 latencies of a tree."""
    sent = 2 * (size - 1) / size * payload_bytes
    latency = 2 * math.ceil(math.log2(size)) * link.latency_seconds if size > 1 else 0.0
    return latency + sent / link.bandwidth_bytes_per_second


class _Step:
    """One step of a layout that fits: what its parts take."""

    def __init__(
        self,
        model: Transformer,
        layout: Layout,
        machine: Machine,
        micro_batches: int,
        assumed: Assumed,
    ) -> None:
        self.model, self.layout, self.machine = model, layout, machine
        self.micro_batches, self.assumed = micro_batches, assumed
        self.layers = count_stage_layers(model, layout)
        self.tokens = layout.micro_batch * model.sequence / layout.context
        self.again = 1 if layout.recompute else 0
        self.dense, self.experts = count_parameters(model, layout)

    def find_parts(self) -> dict[str, float]:
        """Return the seconds of a step, by name. Parts of 0 seconds are left out."""
        layout, device = self.layout, self.time_device()
        compute = sum(device.values())
        backward = compute * (2 + self.again) / (3 + self.again)
        each_data, last_data = self.time_data(compute - backward, backward)
        each = device | self.time_axes(device["attention"]) | {"data": each_data}
        parts = {name: self.micro_batches * seconds for name, seconds in each.items()}
        parts["computation"] = parts.pop("matrix products") + parts.pop("attention")
        parts["bubble"] = (layout.pipeline - 1) * sum(each.values())
        parts["data"] += last_data
        shared = layout.shards if layout.zero_stage else 1
        owned = self.dense / shared + self.experts / max(1, shared // layout.expert)
        state = sum(vars(self.assumed.each).values())
        parts["optimizer"] = self.read_seconds(2 * state * owned)
        return {name: seconds for name, seconds in parts.items() if seconds > 0}

    def read_seconds(self, count: float) -> float:
        return count / (self.machine.memory_bytes_per_second * self.machine.efficiency)

    def time_device(self) -> dict[str, float]:
        """Return what one micro-batch takes on one device, without any communication."""
        model, layout, peak = self.model, self.layout, self.machine.peak_flops
        share = self.tokens / layout.tensor * self.layers / model.layers
        flops = model.flops_per_token + self.again * model.recomputed_flops
        attended = model.layers * model.hidden * model.sequence * (7 + 2 * self.again)
        found = {
            "matrix products": share * flops / (peak * self.machine.efficiency),
            # Of causal attention half is computed: 2 h s forward, 5 h s backward (Dao 2023)
            "attention": share * attended / (peak * self.machine.attention),
            "memory traffic": self.read_seconds(self.count_traffic()),
        }
        launches = self.layers * LAYER_OPERATIONS * (3 + self.again) * LAUNCH_SECONDS
        return found | {"launches": max(0.0, launches - sum(found.values()))}

    def count_traffic(self) -> float:
        """Return the bytes that a micro-batch's operations read and write on a device."""
        model, tensor = self.model, self.layout.tensor
        per_width = FORWARD_BYTES * (1 + self.again) + BACKWARD_BYTES
        per_width *= 1 + (model.active_experts - 1) * 0.6  # 0.6: the MLP's part of the bytes
        layers = self.layers * model.hidden * per_width * self.tokens / tensor
        logits = LOGIT_TRAFFIC * model.vocabulary * self.tokens / tensor / self.layout.pipeline
        weights = NUMBER_BYTES * (self.dense + self.experts) * (3 + self.again)
        return layers + logits + weights

    def time_axes(self, attention: float) -> dict[str, float]:
        """Return the exposed communication of a micro-batch along the other axes."""
        layout, find_link = self.layout, self.machine.find_link
        size, four = NUMBER_BYTES * self.tokens * self.model.hidden, 4 + 2 * self.again
        found = {}
        if layout.tensor > 1:
            one = all_reduce_seconds(find_link(layout.tensor), layout.tensor, size)
            found["tensor"] = self.layers * four * one
        size /= layout.tensor
        if layout.context > 1:
            link = find_link(layout.context, layout.tensor)
            around = (layout.context - 1) * link.seconds(2 * size)
            found["context"] = max(0.0, self.layers * (3 + self.again) * around - attention)
        if layout.expert > 1:
            link = find_link(layout.expert, layout.tensor * layout.context)
            one = gather_seconds(link, layout.expert, size * self.model.active_experts)
            found["expert"] = self.layers * four * one
        if layout.pipeline > 1:
            found["pipeline"] = 2 * find_link(2, layout.tensor * layout.shards).seconds(size)
        return found

    def time_data(self, forward: float, backward: float) -> tuple[float, float]:
        """Return what data parallelism exposes of each micro-batch, and at the end of the step."""
        layout, held = self.layout, self.dense + self.experts
        if layout.shards == 1:
            return 0.0, 0.0
        reduced, ways = self.assumed.reduced_bytes * held, 1 if layout.zero_stage else 2
        weights = self.move(NUMBER_BYTES * held, 1)
        collected = self.move(reduced, ways)
        behind = max(collected - backward, self.move(min(reduced, BUCKET_BYTES), ways))
        if layout.zero_stage < 2:
            return 0.0, behind + (weights if layout.zero_stage else 0.0)
        if layout.zero_stage == 2:
            return behind, weights
        shown = max(0.0, weights - forward) + weights / self.layers
        if not self.assumed.prefetch:
            return shown + weights + collected, 0.0
        late = max(0.0, weights + collected - backward)
        return shown + late + collected / self.layers, 0.0

    def move(self, payload_bytes: float, ways: int) -> float:
        """Return an all-reduce (2 ways) or a gather or scatter (1) over the ranks that share."""
        machine, size, stride = self.machine, self.layout.shards, self.layout.tensor
        table = machine.network and machine.network.measured
        if table and size * stride > machine.ranks_per_node:
            return table.find_seconds(payload_bytes, size) * ways / 2
        seconds = all_reduce_seconds if ways == 2 else gather_seconds
        return seconds(machine.find_link(size, stride), size, payload_bytes)
