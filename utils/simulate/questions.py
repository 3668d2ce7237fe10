"""The simulators as questions: the inputs of each one, and its answer.

    from utils.simulate.questions import Failures

    Failures(nodes=64, node_mtbf_hours=5000, checkpoint_seconds=60, restart_seconds=300).answer()

A field's metadata says how it is read from a command line (`kind`), which values it takes
(`choices`), and what it means (`help`): `distlab simulate` is made from these classes. An
answer is plain data, ready for JSON. NumPy at most.
"""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from ..checks import check_count, check_number
from ..collectives import ALGORITHMS
from ..errors import InputError
from ..schedules import SCHEDULES, make_schedule
from . import failures
from .collective import Link, Nodes, simulate_all_reduce
from .memory import STAGES, ParameterBytes, find_device_memory
from .parameter_server import (
    DISTRIBUTIONS,
    MAX_UPDATES,
    Cluster,
    make_cluster,
    share_servers,
    simulate_parameter_server,
    synchronous_rate,
)
from .pipeline import StageTimes, simulate_pipeline, summarize
from .step import BUCKET_BYTES, Network, StepWork, simulate_step
from .units import ask

LEVELS = tuple(STAGES)


@dataclass(frozen=True, kw_only=True)
class Wires:
    """The links between ranks. With nodes, `latency` and `bandwidth` join ranks of different nodes.

    Latencies are seconds per message, bandwidths bytes per second.
    """

    latency: float = ask("time", "time of a message without its bytes, such as 10us")
    bandwidth: float = ask("rate", "bandwidth: 100Gb/s (bits) or 50GB/s (bytes)")
    ranks_per_node: int | None = ask(
        "whole", "ranks on each node; the last one may have fewer", None
    )
    node_latency: float | None = ask("time", "latency inside a node", None)
    node_bandwidth: float | None = ask("rate", "bandwidth inside a node", None)

    @property
    def network(self) -> Network:
        """The links as a Network. Raises InputError if the three node fields are incomplete."""
        inside = {
            "--ranks-per-node": self.ranks_per_node,
            "--node-latency": self.node_latency,
            "--node-bandwidth": self.node_bandwidth,
        }
        missing = [name for name, value in inside.items() if value is None]
        link = Link(self.latency, self.bandwidth)
        if len(missing) == len(inside):
            return Network(link)
        if missing:
            given = " and ".join(name for name in inside if name not in missing)
            raise InputError(
                f"{' and '.join(missing)} must be given with {given}. Add what's missing."
            )
        nodes = Nodes(self.ranks_per_node, Link(self.node_latency, self.node_bandwidth))
        return Network(link, nodes)


@dataclass(frozen=True, kw_only=True)
class StepQuestion(Wires):
    """Predict a data-parallel step: compute, all-reduce in buckets, overlap, stragglers.

    Gradients become ready evenly over the backward pass. A ring all-reduces them bucket by
    bucket. The step ends with compute or with the last bucket, whichever is later. With
    stragglers it waits for the expected slowest device.
    """

    forward_seconds: float = ask("number", "seconds of the forward pass")
    backward_seconds: float = ask("number", "seconds of the backward pass")
    gradient_bytes: int = ask("large", "bytes of all gradients")
    devices: int = ask("whole", "number of devices")
    bucket_bytes: int = ask("large", "bytes of a bucket; the last one is smaller", BUCKET_BYTES)
    no_overlap: bool = ask("flag", "reduce only after the whole backward pass", False)
    straggler_sigma: float = ask(
        "number", "sigma of each device's lognormal slowdown (mean 1)", 0.0
    )

    def answer(self) -> dict[str, Any]:
        """Return the step's seconds, by what they go to, and its efficiency."""
        work = StepWork(self.forward_seconds, self.backward_seconds, self.gradient_bytes)
        run = simulate_step(
            work,
            self.devices,
            self.network,
            bucket_bytes=self.bucket_bytes,
            overlap=not self.no_overlap,
            straggler_sigma=self.straggler_sigma,
        )
        names = (
            "step_seconds compute_seconds straggler_seconds communication_seconds "
            "exposed_communication_seconds efficiency"
        ).split()
        return {name: getattr(run, name) for name in names} | {"buckets": len(run.ends)}


@dataclass(frozen=True, kw_only=True)
class AllReduce(Wires):
    """Predict an all-reduce: seconds, messages, bytes and bus bandwidth.

    A message takes its latency, plus its bytes over the bandwidth. Messages and bytes are those
    sent by the busiest rank. The algorithm "hierarchical" needs nodes.
    """

    algorithm: str = ask("text", "all-reduce algorithm", choices=ALGORITHMS)
    ranks: int = ask("whole", "number of ranks")
    bytes: int = ask("large", "bytes that each rank holds")

    def answer(self) -> dict[str, Any]:
        """Return the fields of AllReduceCost. Raises InputError for hierarchical without nodes."""
        network = self.network
        if self.algorithm == "hierarchical" and network.nodes is None:
            raise InputError(
                "--ranks-per-node, --node-latency and --node-bandwidth must be given for "
                "hierarchical. Add them."
            )
        links = network.link, network.nodes
        return asdict(simulate_all_reduce(self.algorithm, self.ranks, self.bytes, *links))


@dataclass(frozen=True, kw_only=True)
class PipelineQuestion:
    """Predict a pipeline schedule: bubble, makespan and peak activations.

    Times are in any one unit, for one stage and one micro-batch. With V chunks each chunk takes
    1/V of them. The bubble is 1 - M(F+B+W) / the longest span of a stage, from its first start to
    its last end. Peak activations are the most micro-batches that a stage keeps at once.
    """

    schedule: str = ask("text", "order of the micro-batches", choices=tuple(SCHEDULES))
    stages: int = ask("whole", "number of pipeline stages")
    micro_batches: int = ask("whole", "micro-batches in a step")
    forward: float = ask("number", "time of the forward pass (F)")
    backward_input: float = ask("number", "time of the backward pass for the inputs (B)")
    backward_weight: float = ask("number", "time of the backward pass for the weights (W)")
    communication: float = ask("number", "delay of a hop between stages; occupies no stage", 0.0)
    chunks: int | None = ask(
        "whole", "model parts per stage [interleaved-1f1b: 2, others: 1]", None
    )

    def answer(self) -> dict[str, Any]:
        """Return bubble, makespan, longest span, and peaks by stage."""
        schedule = make_schedule(self.schedule, self.stages, self.micro_batches, self.chunks)
        times = StageTimes(
            self.forward, self.backward_input, self.backward_weight, self.communication
        )
        return summarize(simulate_pipeline(schedule, times))


@dataclass(frozen=True, kw_only=True)
class ParameterServer:
    """Predict asynchronous training: staleness and speed, next to synchronous rounds.

    A worker writes each gradient as soon as it has it. An update's staleness is the number of
    other updates between its read and its write. A synchronous round waits for all workers
    except the backup workers. With servers, every step also pulls the parameters and pushes the
    gradients over the servers' links.
    """

    workers: int = ask("whole", "number of workers")
    step_seconds: float = ask("number", "mean seconds of a worker's step")
    distribution: str = ask(
        "text", "how step times vary", choices=("constant", "exponential", DISTRIBUTIONS[1])
    )
    updates: int = ask("whole", "number of updates to simulate")
    sigma: float = ask("number", "lognormal: standard deviation of the logarithm", 0.5)
    backup_workers: int = ask("whole", "workers that a round doesn't wait for", 0)
    slow_worker: float = ask("number", "factor by which worker 0 is slower", 1.0)
    servers: int | None = ask("whole", "servers that share the parameters", None)
    parameter_bytes: int = ask("large", "with --servers: bytes of the model", 0)
    bandwidth: float | None = ask("rate", "with --servers: link of each machine", None)
    seed: int = ask("whole", "seed of the random step times", 0)

    @property
    def cluster(self) -> Cluster:
        """The workers, slowed down by the servers' links if there are servers."""
        cluster = make_cluster(
            self.workers,
            self.step_seconds,
            self.distribution,
            sigma=self.sigma,
            slow_factor=self.slow_worker,
        )
        if self.servers is None:
            return cluster
        if self.bandwidth is None:
            raise InputError(
                "--bandwidth and --parameter-bytes must be given with --servers. Add them."
            )
        return share_servers(cluster, self.parameter_bytes, self.servers, self.bandwidth)

    def answer(self) -> dict[str, Any]:
        """Return staleness, and updates per second of both ways."""
        check_count("updates", self.updates, 1, MAX_UPDATES)
        seed, cluster = check_count("seed", self.seed, 0), self.cluster
        run = simulate_parameter_server("asynchronous", cluster, self.updates, seed=seed)
        counts = Counter(run.staleness)
        rate = synchronous_rate(cluster, self.updates, backup=self.backup_workers, seed=seed)
        return {
            "mean_staleness": run.mean_staleness,
            "staleness_histogram": {str(stale): counts[stale] for stale in sorted(counts)},
            "updates_per_second": run.updates_per_second,
            "synchronous_updates_per_second": rate,
        }


@dataclass(frozen=True, kw_only=True)
class Failures:
    """Predict the best checkpoint interval, and the share of time that trains.

    A failure of any node stops the run; failures are exponential. An interval T costs Daly's
    exact M e^(R/M) (e^((T+D)/M) - 1) / T, with M the time between failures of all nodes together.
    """

    nodes: int = ask("whole", "number of nodes")
    node_mtbf_hours: float = ask("number", "hours between failures of one node, on average")
    checkpoint_seconds: float = ask("number", "seconds to save once (D)")
    restart_seconds: float = ask("number", "seconds to restart after a failure (R)")
    interval_seconds: float | None = ask(
        "number", "seconds of work between checkpoints [the best]", None
    )

    def answer(self) -> dict[str, Any]:
        """Return the best interval, Young's and Daly's, and the share of time that trains."""
        check_count("nodes", self.nodes)
        hours = check_number("node MTBF in hours", self.node_mtbf_hours, above=0)
        mtbf = failures.group_mtbf_seconds(hours * 3600, self.nodes)
        save, restart = self.checkpoint_seconds, self.restart_seconds
        check_number("checkpoint seconds", save, above=0)
        check_number("restart seconds", restart, least=0)
        best = failures.best_interval_seconds(save, mtbf)
        interval = best if self.interval_seconds is None else self.interval_seconds
        return {
            "optimal_interval_seconds": best,
            "young_seconds": failures.young_interval_seconds(save, mtbf),
            "daly_seconds": failures.daly_interval_seconds(save, mtbf),
            "effective_training_time": failures.effective_time_fraction(
                interval, save, mtbf, restart
            ),
        }


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Predict the bytes on each device under ZeRO, tensor and pipeline parallelism, recomputation.

    N data-parallel copies, each split over T x S devices. By default a parameter takes 2 bytes,
    its gradient 2 and Adam's state 12 (mixed precision).
    """

    parameters: int = ask("large", "parameters of the model, such as 7.5e9")
    data_parallel: int = ask("whole", "data-parallel copies of the model (N)")
    zero_stage: int = ask(
        "whole", "; ".join(f"{k}: {v}" for k, v in STAGES.items()), choices=LEVELS
    )
    tensor_parallel: int = ask("whole", "devices that split each layer (T)", 1)
    pipeline_parallel: int = ask("whole", "pipeline stages (S)", 1)
    activation_bytes: int = ask("large", "bytes of activations on each device", 0)
    recompute: bool = ask("flag", "keep 2 / sqrt(layers) of the activations", False)
    layers: int = ask("whole", "with --recompute: equal layers on each device", 24)
    weights_bytes: float = ask("number", "bytes of weights per parameter", ParameterBytes.weights)
    gradients_bytes: float = ask(
        "number", "bytes of gradients per parameter", ParameterBytes.gradients
    )
    optimizer_bytes: float = ask(
        "number", "bytes of optimizer state per parameter", ParameterBytes.optimizer
    )

    def answer(self) -> dict[str, Any]:
        """Return the bytes by what they are for, and their total."""
        check_count("data parallel", self.data_parallel)
        each = ParameterBytes(self.weights_bytes, self.gradients_bytes, self.optimizer_bytes)
        held = find_device_memory(
            self.parameters,
            self.data_parallel,
            self.zero_stage,
            each,
            tensor_parallel=self.tensor_parallel,
            pipeline_parallel=self.pipeline_parallel,
            activation_bytes=self.activation_bytes,
            recomputed_layers=self.layers if self.recompute else None,
        )
        parts = {
            "parameters": held.weights,
            "gradients": held.gradients,
            "optimizer": held.optimizer,
            "activations": held.activations,
        }
        return {"bytes_per_device": {**parts, "total": held.total}}


QUESTIONS = {
    "step": StepQuestion,
    "all-reduce": AllReduce,
    "pipeline": PipelineQuestion,
    "parameter-server": ParameterServer,
    "failures": Failures,
    "memory": Memory,
}
