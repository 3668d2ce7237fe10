"""Published runs next to the simulators' predictions: inputs, model, prediction.

Each function reads one table of `published`, feeds its inputs to a simulator, and returns the
published number and the predicted one. `COMPARISONS` lists them all with how near they have to come
(None: shown, not promised). The models know nothing of the tables: each docstring says what a fit
takes from them. NumPy at most.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..schedules import make_schedule
from .collective import Link, fit_link, simulate_all_reduce
from .failures import best_effective_time, group_mtbf_seconds
from .llm_foundry import predict_foundry
from .measured import MeasuredAllReduce
from .memory import find_zero_memory
from .parameter_server import find_round_transfer
from .pipeline import StageTimes, simulate_pipeline
from .published import read_table

GRADIENT_BYTES = {  # of float32 gradients: the parameters of each network, times 4
    "inception_v3": 4 * 23.9e6,
    "resnet_50": 4 * 25.6e6,
    "resnet_152": 4 * 60.2e6,
    "alexnet": 4 * 61.0e6,
    "vgg16": 4 * 138.4e6,
}
MAX_LATENCY_SECONDS = 1e-4
SEQUENCE, WORDS = 2048, 51_200
SCHEDULES = {"1F1B": "1f1b", "ZBH1": "zb-h1", "ZBH2": "zb-h2", "1F1BI": "interleaved-1f1b"}


@dataclass(frozen=True)
class Compared:
    """One published number and its prediction; `tolerance` relative, None if only shown."""

    label: str
    published: float
    predicted: float
    tolerance: float | None = None

    @property
    def error(self) -> float:
        """The error of the prediction, relative to the published number."""
        return self.predicted / self.published - 1


def compare_bubbles() -> list[Compared]:
    """Return Zero Bubble's theoretical bubble rates. Inputs: stages, micro-batches and times."""
    found = []
    for row in read_table("zero_bubble_2023"):
        for column, name in SCHEDULES.items():
            rate, run = row[f"bub_{column}"], _run_pipeline(name, row)
            allowed = 0.05 if column == "1F1BI" else 1e-4 / rate
            found.append(Compared(f"{_name_row(row)} {column}", rate, run.bubble_fraction, allowed))
    return found


def compare_schedules() -> list[Compared]:
    """Return measured samples/s of two schedules relative to 1F1B's, and ours.

    The simulated longest span gives each rate, so what every schedule loses to the machine
    falls out of the ratio. ZB-1p, which was run, has the bubble of ZB-H1.
    """
    found = []
    for row in read_table("zero_bubble_2023"):
        plain = _run_pipeline("1f1b", row).longest_stage_span
        for column, name in (("1F1BI", "interleaved-1f1b"), ("ZB1p", "zb-h1")):
            ratio = row[f"sps_{column}"] / row["sps_1F1B"]
            predicted = plain / _run_pipeline(name, row).longest_stage_span
            found.append(Compared(f"{_name_row(row)} {column} / 1F1B", ratio, predicted, 0.10))
    return found


def _name_row(row: dict) -> str:
    return f"{row['model']} m={row['m']:g}"


def _run_pipeline(name: str, row: dict):
    chunks = 3 if name == "interleaved-1f1b" else None  # the paper's models have 3 parts a stage
    schedule = make_schedule(name, int(row["p"]), int(row["m"]), chunks)
    return simulate_pipeline(schedule, StageTimes(row["TF"], row["TB"], row["TW"], row["Tcomm"]))


def compare_gpipe() -> list[Compared]:
    """Return GPipe's throughput by partitions, relative to 2; inputs: K, M and equal stages."""
    rows = read_table("gpipe_table3_2019")

    def span(row: dict) -> float:
        times = StageTimes(1 / row["K"], 1 / row["K"], 1 / row["K"]).recompute()
        schedule = make_schedule("gpipe", int(row["K"]), int(row["M"]))
        return simulate_pipeline(schedule, times).longest_stage_span

    found = []
    for column, allowed in (("Transformer_24", 0.20), ("AmoebaNet_D_18_128", None)):
        for row in rows[1:]:
            label = f"{column.partition('_')[0]} K={row['K']:g}"
            found.append(Compared(label, row[column], span(rows[0]) / span(row), allowed))
    return found


def list_batches(platform: str) -> dict[str, int]:
    """Return each model's batch on one GPU in TensorFlow's benchmarks of 2017."""
    small = 64 if platform.startswith("DGX1") else 32
    return {
        "inception_v3": 64,
        "resnet_50": 64,
        "resnet_152": small,
        "alexnet": 512,
        "vgg16": small,
    }


def fit_resnet_link() -> Link:
    """Return the one link on which ResNet-50's published steps lose what they lose.

    On every platform and at every size: least squares over what a step takes longer than on
    one GPU, in parts of that step, as one ring all-reduce after the backward pass. The
    latency may be 0.1 ms at most: left alone, the fit puts all the loss of this one model
    into a latency of milliseconds, which no link has, and nothing into bytes.
    """
    sums, lost = [], []
    for platform, gpus, alone, together in _list_speeds("resnet_50"):
        step = list_batches(platform)["resnet_50"] / alone
        moved = 2 * (gpus - 1) / gpus * GRADIENT_BYTES["resnet_50"]
        sums.append([2 * (gpus - 1) / step, moved / step])
        lost.append(alone * gpus / together - 1)
    return _fit_link(np.array(sums), np.array(lost))


def _fit_link(sums: np.ndarray, lost: np.ndarray) -> Link:
    """Return latency and bandwidth of least squares, the latency from 0 to MAX_LATENCY_SECONDS."""
    latency, per_byte = np.linalg.lstsq(sums, lost, rcond=None)[0]
    if not 0 <= latency <= MAX_LATENCY_SECONDS:
        latency = min(max(latency, 0.0), MAX_LATENCY_SECONDS)
        rest = lost - sums[:, 0] * latency
        per_byte = sums[:, 1] @ rest / (sums[:, 1] @ sums[:, 1])
    return Link(float(latency), 1 / float(per_byte))


def _list_speeds(model: str) -> list[tuple[str, int, float, float]]:
    """Return (platform, GPUs, rate of one, rate of all) for sizes of 2 to 16 GPUs."""
    alone, found = {}, []
    for row in read_table("tf_benchmarks_2017"):
        rate, gpus = row[model], int(row["gpus"])
        if rate != "":
            alone.setdefault(row["platform"], rate)
            if 1 < gpus <= 16:
                found.append((row["platform"], gpus, alone[row["platform"]], rate))
    return found


def compare_benchmarks() -> list[Compared]:
    """Return speed-ups on 8 and 16 GPUs. Inputs: rate of one GPU, batch and gradient bytes.

    One latency and one bandwidth for all, fitted on ResNet-50 (`fit_resnet_link`).
    """
    link, found = fit_resnet_link(), []
    for model, payload in GRADIENT_BYTES.items():
        for platform, gpus, alone, together in _list_speeds(model):
            step = list_batches(platform)[model] / alone
            ring = simulate_all_reduce("ring", gpus, payload, link).seconds
            if gpus >= 8:
                label = f"{model} {platform} {gpus}"
                speed_up = gpus * step / (step + ring)
                found.append(Compared(label, together / alone, speed_up, 0.15))
    return found


def compare_several_machines() -> list[Compared]:
    """Return images/s of 16 to 64 GPUs. Inputs: the rate of one machine's 8, and bytes.

    Nothing is fitted. Every machine (AWS p2.8xlarge, 10 Gb/s) is a worker and a parameter
    server, as in the benchmark's `distributed_replicated`: before a step it pulls what the other
    machines hold, and its pushes leave during the backward pass.
    """
    rows = {
        int(r["gpus"]): r
        for r in read_table("tf_benchmarks_2017")
        if r["platform"] == "EC2-K80-distributed"
    }
    found = []
    for model in ("inception_v3", "resnet_50", "resnet_152"):
        batch, one = 8 * list_batches("EC2-K80-distributed")[model], rows[8][model]
        for gpus in sorted(set(rows) - {1, 8}):
            rate = predict_machines(batch, one, GRADIENT_BYTES[model], gpus // 8)
            found.append(Compared(f"{model} {gpus} GPUs", rows[gpus][model], rate, 0.10))
    return found


def predict_machines(batch: int, rate: float, payload_bytes: float, machines: int) -> float:
    """Return examples/s of machines on 10 Gb/s, from the `rate` of one with a batch of `batch`."""
    step = batch / rate
    elsewhere = payload_bytes * (machines - 1) / machines
    moved = find_round_transfer(elsewhere, machines, machines, 1.25e9, 2 / 3 * step)
    return machines * batch / (step + moved)


def compare_lamb() -> list[Compared]:
    """Return LAMB's minutes on 64 and 128 TPU chips; inputs: minutes on 16 and 32.

    A step is compute and an all-reduce by a tree, which takes log2 P rounds. The two sizes
    give the compute and the time of a round.
    """
    first, second, *others = read_table("lamb_bert_weak_scaling")
    rounds = [math.log2(row["tpus"]) for row in (first, second)]
    minutes = [row["minutes"] / row["iterations"] for row in (first, second)]
    one_round = (minutes[1] - minutes[0]) / (rounds[1] - rounds[0])
    compute = minutes[0] - one_round * rounds[0]

    def predict(row: dict) -> float:
        return row["iterations"] * (compute + one_round * math.log2(row["tpus"]))

    return [Compared(f"{r['tpus']:g} chips", r["minutes"], predict(r), 0.10) for r in others]


def compare_nccl() -> list[Compared]:
    """Return nccl-tests' microseconds by bytes. Inputs: the times at 8 B and 1 GiB."""
    rows = {row["bytes"]: row["time_us_out_of_place"] for row in read_table("nccl_allreduce_p4de")}
    ends = (8, 2**30)
    link, _ = fit_link("ring", 16, ends, [rows[n] / 1e6 for n in ends])
    found = []
    for size, published in rows.items():
        predicted = 1e6 * simulate_all_reduce("ring", 16, size, link).seconds
        is_middle = 8 * 2**10 < size < 256 * 2**20
        found.append(Compared(f"{size:g}", published, predicted, None if is_middle else 0.15))
    return found


def compare_measured_table() -> list[Compared]:
    """Return nccl-tests' microseconds. Inputs: the table without that size and its neighbors."""
    rows = read_table("nccl_allreduce_p4de")
    sizes, times = ([row[key] for row in rows] for key in ("bytes", "time_us_out_of_place"))
    found = []
    for at, (size, published) in enumerate(zip(sizes, times, strict=True)):
        rest = [k for k in range(len(rows)) if abs(k - at) > 1]
        table = MeasuredAllReduce(tuple(sizes[k] for k in rest), tuple(times[k] for k in rest))
        found.append(Compared(f"{size:g} B", published, table.find_seconds(size), 0.15))
    return found


def find_bucket_error() -> float:
    """Return how far two numbers are off nccl-tests' all-reduces of 1 to 64 MiB, at worst."""
    return min(row.error for row in compare_nccl() if 2**20 <= float(row.label) <= 2**26)


def compare_bus_bandwidth() -> list[Compared]:
    """Return bus bandwidth by H200s of a node. Inputs: four GPUs' bandwidth, 5 us a message."""
    rows = read_table("h200_ring_busbw")
    link = Link(5e-6, rows[0]["h200_ring"] * 1e9)
    return [
        Compared(
            f"{row['ranks']:g} ranks",
            row["h200_ring"],
            simulate_all_reduce(
                "ring", int(row["ranks"]), 2**34, link
            ).bus_bandwidth_bytes_per_second
            / 1e9,
            0.02,
        )
        for row in rows[1:]
    ]


def compare_foundry() -> list[Compared]:
    """Return MFU in percent of 49 runs of llm-foundry. Inputs: model, GPUs, micro-batch, sharding.

    One efficiency for each GPU type, fitted on one row (`find_fitted_row`). 30 % for each row;
    the test asks for more of all together.
    """
    return [
        Compared(
            f"{row['system']} {row['model']} {row['sequence']:g} x{row['gpus']:g}",
            row["mfu_percent"],
            predict_foundry(row),
            0.30,
        )
        for row in read_table("llm_foundry_2024")
    ]


def transformer_parameters(layers: float, hidden: float) -> float:
    """Return the parameters of a GPT model, Narayanan et al. 2021, equation 2."""
    return (
        12
        * layers
        * hidden**2
        * (1 + 13 / (12 * hidden) + (WORDS + SEQUENCE) / (12 * layers * hidden))
    )


def transformer_flops(layers: float, hidden: float, batch: float) -> float:
    """Return the operations of one iteration with recomputation, Narayanan et al., equation 3."""
    return (
        96
        * batch
        * SEQUENCE
        * layers
        * hidden**2
        * (1 + SEQUENCE / (6 * hidden) + WORDS / (16 * layers * hidden))
    )


def compare_megatron_sizes() -> list[Compared]:
    """Return billions of parameters by the formula; inputs: layers and hidden size."""
    return [
        Compared(
            f"{row['layers']:g} layers of {row['hidden']:g}",
            row["parameters_billion"],
            transformer_parameters(row["layers"], row["hidden"]) / 1e9,
            0.03,
        )
        for row in read_table("megatron_2021_table1")
    ]


def compare_zero_memory() -> list[Compared]:
    """Return gigabytes on a device under ZeRO's stages; inputs: parameters and ranks."""
    found = []
    for row in read_table("zero_memory"):
        for stage in (1, 2, 3):
            parameters, ranks = row["parameters_billion"] * 1e9, int(row["data_parallel"])
            held = find_zero_memory(parameters, ranks, stage).total / 1e9
            found.append(Compared(f"stage {stage}", row[f"stage{stage}_gb"], held, 0.01))
    return found


def llama_mtbf_hours() -> float:
    """Return the hours between unexpected interruptions of Llama 3's pre-training."""
    (row,) = read_table("llama3_2024")
    return row["days"] * 24 / row["unexpected_interruptions"]


def compare_llama(save_seconds: float = 60.0, restart_seconds: float = 600.0) -> list[Compared]:
    """Return the published least share of time that trained, and Daly's at the best interval.

    What a save and a restart took wasn't published: they are stated here.
    """
    (row,) = read_table("llama3_2024")
    mtbf = group_mtbf_seconds(llama_mtbf_hours() * row["gpus"] * 3600, int(row["gpus"]))
    share = best_effective_time(save_seconds, mtbf, restart_seconds)
    least = float(str(row["effective_training_time"]).lstrip(">"))
    return [Compared("share of time that trains", least, share)]


COMPARISONS: dict[str, Callable[[], list[Compared]]] = {
    "zero_bubble_2023: bubbles": compare_bubbles,
    "zero_bubble_2023: samples a second": compare_schedules,
    "gpipe_table3_2019": compare_gpipe,
    "tf_benchmarks_2017": compare_benchmarks,
    "tf_benchmarks_2017: several machines": compare_several_machines,
    "lamb_bert_weak_scaling": compare_lamb,
    "nccl_allreduce_p4de": compare_nccl,
    "nccl_allreduce_p4de: as a table": compare_measured_table,
    "h200_ring_busbw": compare_bus_bandwidth,
    "megatron_2021_table1: parameters": compare_megatron_sizes,
    "zero_memory": compare_zero_memory,
    "llama3_2024": compare_llama,
    "llm_foundry_2024": compare_foundry,
}
