"""What the browser's models compute, against its truth: Node.js compares, in tests/browser."""

import re
from dataclasses import asdict
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from node_runner import run_in_node

from distlab.explorables import edit_cluster, float_line
from distlab.explorables.arrow import list_gradients, make_problem
from distlab.explorables.catalog import EXAMPLES
from distlab.explorables.conveyor import run_belt
from distlab.explorables.memory import find_held
from distlab.figures import split_evenly
from distlab.lessons.scaled_updates import DIVISORS, Shares, update_ratio
from utils.collectives import ALGORITHMS, all_reduce, combine_values
from utils.collectives.replica_values import WAYS
from utils.data import split_batch
from utils.errors import DistributedError
from utils.input_pipeline.sharding import check_cover, shard_examples
from utils.schedules import SCHEDULES, make_schedule
from utils.simulate.collective import Link, Nodes, simulate_all_reduce
from utils.simulate.parameter_server import MODES, Cluster, simulate_parameter_server
from utils.simulate.pipeline import StageTimes, simulate_pipeline
from utils.simulate.step import Network, StepWork, simulate_step
from utils.simulate.transformer import find_shape
from utils.tf_config import lint, lint_together

pytestmark = pytest.mark.slow(10)
Groups = dict[str, Any]  # of each test of a file: [given, truth], and what all of them use


def list_schedules() -> Groups:
    rng, cases = np.random.default_rng(1), []
    for name in SCHEDULES * 8:
        stages, micro_batches, chunks = (int(n) for n in rng.integers(1, (9, 17, 5)))
        if name == "interleaved-1f1b":
            micro_batches = stages * max(1, micro_batches // stages)
        backward, hop = float(rng.uniform(1, 3)), float(rng.uniform(0, 1))
        times = {"forward": 1, "backward": backward, "hop": hop}
        own = chunks if name == "interleaved-1f1b" else None
        costs = StageTimes(1.0, backward / 2, backward / 2, hop)
        run = simulate_pipeline(make_schedule(name, stages, micro_batches, own), costs)
        truth = {
            "bubble": run.bubble_fraction,
            "peaks": list(run.peak_activations_per_stage),
            "blocks": [
                (stage, place, o.kind, o.micro_batch, o.chunk)
                for stage, order in enumerate(run.schedule.orders)
                for place, o in enumerate(order)
            ],
            "ends": run.ends,
        }
        cases.append([[name, stages, micro_batches, chunks, times], truth])
    return {"schedules": cases}


def list_devices() -> Groups:
    rng, cases = np.random.default_rng(2), []
    for _ in range(40):
        tops = {"sequenceLog": 16, "dataLog": 11, "tensorLog": 5, "pipelineLog": 6}
        logs = {name: int(rng.integers(0, top)) for name, top in tops.items()}
        powers = {name.removesuffix("Log"): 2**n for name, n in logs.items()}
        case = {
            **logs,
            **powers,
            "parameters": float(10 ** rng.uniform(7, 12)),
            "batch": int(rng.integers(1, 65)),
            "micros": int(rng.integers(1, 65)),
            "zero": int(rng.integers(0, 4)),
            "recompute": bool(rng.integers(2)),
            "scores": bool(rng.integers(2)),
            "sequenceParallel": bool(rng.integers(2)),
            "precision": str(rng.choice(["mixed", "float32"])),
            "stage": int(rng.integers(powers["pipeline"])),
        }
        held = find_held(case, case["stage"])
        parts = ("weights", "gradients", "optimizer", "activations")
        truth = {"held": {n: getattr(held, n) for n in parts}, "wires": find_wire_bytes(case)}
        cases.append([case, truth])
    return {"devices": cases}


def find_wire_bytes(case):
    """Return the bytes that a device in the middle of the pipeline sends, each way, in a step.

    Between replicas: a ring all-reduce of the device's own gradients, or 1.5 times that at
    ZeRO's stage 3, which gathers the weights twice (Rajbhandari et al. 2020, section 7).
    Inside a layer: four all-reduces of the layer's output for each micro-batch (Shoeybi et al.
    2019), six with recomputation. Between stages: one output forward, one gradient back.
    """
    shape, number_bytes = find_shape(case["parameters"]), 2 if case["precision"] == "mixed" else 4
    own = case["parameters"] / (case["tensor"] * case["pipeline"]) * number_bytes
    output = case["sequence"] * case["batch"] * shape.hidden * number_bytes
    calls = (6 if case["recompute"] else 4) * shape.layers / case["pipeline"] * case["micros"]
    ring = {ranks: 2 * (ranks - 1) / ranks for ranks in (case["data"], case["tensor"])}
    return {
        "data": ring[case["data"]] * own * (1.5 if case["zero"] == 3 else 1.0),
        "tensor": ring[case["tensor"]] * output * calls,
        "pipeline": 2 * output * case["micros"] if case["pipeline"] > 1 else 0.0,
    }


def list_all_reduces() -> Groups:
    """Return the simulation's seconds, and the messages that the algorithms really send."""
    rng, cases = np.random.default_rng(3), []
    for algorithm in ALGORITHMS * 10:
        ranks = int(rng.integers(2, 17))
        n = {
            "ranks": ranks,
            "perNode": int(rng.integers(1, ranks + 1)),
            "inside": int(rng.choice([1, 10])),
            "bytes": 720720 * int(rng.integers(1, 1000)),
            "latency": float(rng.uniform(0, 1e-3)),
            "bandwidth": float(10 ** rng.uniform(8, 12)),
        }
        nodes = Nodes(n["perNode"], Link(n["latency"] / n["inside"], n["bandwidth"] * n["inside"]))
        link = Link(n["latency"], n["bandwidth"])
        cost = simulate_all_reduce(algorithm, ranks, n["bytes"], link, nodes)
        run = all_reduce([np.zeros(ranks)] * ranks, algorithm, n["perNode"])
        sent = [[] for _ in range(run.steps)]
        for message in run.messages:
            sent[message.step].append([message.source, message.destination])
        truth = {
            "seconds": cost.seconds,
            "clock": cost.seconds,
            "messages": cost.messages_per_rank,
            "bytes": cost.bytes_per_rank,
            "sent": [sorted(step) for step in sent],
            "end": [[2**ranks - 1] * ranks] * ranks,
        }
        cases.append([[algorithm, n], truth])
    return {"all-reduces": cases}


def list_updates() -> Groups:
    rng, groups = np.random.default_rng(4), {"steps": [], "degrees": []}
    problem = make_problem()
    start = np.array(problem["start"])
    singles = list_gradients(problem, start)
    errors = np.array(problem["inputs"]) @ start - problem["targets"]
    for way in list(DIVISORS) * 6:
        case = {
            "way": way,
            "replicas": int(rng.integers(1, 9)),
            "examples": int(rng.integers(2, 65)),
            "written": int(rng.integers(2, 65)),
        }
        batch = Shares(case["replicas"], case["examples"], case["written"])
        one = Shares(1, case["examples"], case["examples"])
        ratio, residual = update_ratio(singles @ singles.T, batch, way)
        truth = {
            "path": take_steps(problem, batch, way, 5),
            "alone": take_steps(problem, one, "tf.reduce_mean", 5),
            "ratio": ratio,
            "loss": np.mean(errors[: case["examples"]] ** 2) / 2,
        }
        groups["steps"].append([[problem, case], truth])
        groups["degrees"].append([[problem, case], np.degrees(np.arctan2(residual, ratio))])
    return groups


def take_steps(problem, batch, way, steps):
    """Return the weights before each step of the replicas and after the last, [step, weight]."""
    factors = np.array(
        [
            1 / DIVISORS[way](own, batch)
            for own in split_batch(batch.examples, batch.replicas)
            for _ in range(own)
        ]
    )  # [example]
    path = [np.array(problem["start"])]
    for _ in range(steps):
        gradients = list_gradients(problem, path[-1])[: batch.examples]
        path.append(path[-1] - problem["rate"] * factors @ gradients)
    return np.array(path)


def list_steps() -> Groups:
    rng, cases = np.random.default_rng(5), []
    for _ in range(40):
        c = {
            "forward": float(rng.uniform(0, 0.1)),
            "backward": float(rng.uniform(0.001, 0.2)),
            "update": float(rng.uniform(0, 0.01)),
            "gradients": float(rng.uniform(1e6, 4e8)),
            "bucket": float(10 ** rng.uniform(5.5, 8.6)),
            "workers": int(rng.integers(1, 257)),
            "latency": float(10 ** rng.uniform(-6, -3)),
            "overlap": bool(rng.integers(2)),
            "bandwidth": float(10 ** rng.uniform(8, 11)),
        }
        work = StepWork(c["forward"], c["backward"], c["gradients"], c["update"])
        network = Network(Link(c["latency"], c["bandwidth"]))
        sizes = {"bucket_bytes": c["bucket"], "overlap": c["overlap"]}
        run = simulate_step(work, c["workers"], network, **sizes)
        truth = {
            "step": run.step_seconds,
            "exposed": run.exposed_communication_seconds,
            "wait": run.exposed_communication_seconds,
            "communication": run.communication_seconds,
            "efficiency": run.efficiency,
            **{name: getattr(run, name) for name in ("ready", "starts", "ends")},
        }
        cases.append([c, truth])
    return {"steps": cases}


def list_answers() -> Groups:
    rng, cases = np.random.default_rng(6), []
    for way in WAYS * 12:
        values = rng.normal(size=int(rng.integers(1, 17))).tolist()
        replicas, pieces = int(rng.integers(1, 9)), str(rng.choice(["even", "filled"]))
        counts = split_evenly(len(values), replicas)
        if pieces == "filled":  # as a dataset cuts its last batch: full pieces first
            full = -(-len(values) // replicas)
            counts = [min(full, max(0, len(values) - k * full)) for k in range(replicas)]
        owners = np.repeat(range(replicas), counts)
        if moved := len(cases) % 3 == 0:  # by hand, one value after the other
            owners = rng.integers(0, replicas, len(values))
        parts = [np.array(values)[owners == k].tolist() for k in range(replicas)]
        told = "".join(map(str, owners)) if moved else ""
        try:
            truth = {"fails": False, "answer": combine_values(way, parts)}
        except DistributedError:
            truth = {"fails": True, "answer": None}
        cases.append([[way, values, replicas, pieces, told], truth | {"parts": parts}])
    assert 0 < sum(truth["fails"] for _, truth in cases) < len(cases) - len(WAYS)
    return {"answers": cases}


class GivenFactors(Cluster):
    """Workers whose steps take longer by FACTORS, one after the other, as in the browser."""

    FACTORS = np.random.default_rng(7).gamma(4, 1 / 4, 97)

    def draw_factors(self, random, size):
        return np.resize(self.FACTORS, 97 * 100)


def list_races() -> Groups:
    rng, cases = np.random.default_rng(8), []
    for mode in MODES * 8:
        seconds = rng.uniform(0.5, 3, int(rng.integers(2, 9))).tolist()
        backup = int(rng.integers(1, len(seconds)))
        case = {
            "mode": mode,
            "seconds": seconds,
            "updates": int(rng.integers(1, 80)),
            "factors": GivenFactors.FACTORS.tolist(),
            "bound": int(rng.integers(0, 5)),
            "backup": backup,
            "rate": float(rng.uniform(0.05, 2.5)),
        }
        takes = {"bounded": ["bound"], "backup": ["backup"]}
        extra = {name: case[name] for name in takes.get(mode, [])}
        run = simulate_parameter_server(mode, GivenFactors(seconds), case["updates"], **extra)
        truth = {
            "staleness": run.staleness,
            "workers": run.workers_of,
            "begun": run.begun,
            "ended": run.ended,
            "late": [k in run.late for k in range(len(run.begun))],
            "end": run.seconds,
            "losses": descend_stale(run.staleness, case["rate"]),
        }
        cases.append([case, truth])
    return {"races": cases}


def descend_stale(staleness, rate):
    """Return the loss before each update and after the last: update u has a gradient of the past.

    The loss is a quadratic valley, half the sum of curvature x weight**2; all weights start at 1.
    """
    curvatures = np.array([1.0, 0.35, 0.1])
    weights = [np.ones(3)]
    with np.errstate(over="ignore", invalid="ignore"):
        for update, stale in enumerate(staleness):
            weights.append(weights[update] - rate * curvatures * weights[update - stale])
        losses = np.square(weights) @ curvatures / 2
    return np.nan_to_num(losses, nan=np.inf, posinf=np.inf)


def list_belts() -> Groups:
    rng, piece = np.random.default_rng(6), EXAMPLES["conveyor"]()
    timed, same = ("read", "decode", "augment", "step"), ("pulled", "emitted", "ready", "starts")
    cases = []
    for _ in range(30):
        case = {
            **piece.options,
            **{f"{name}Ms": float(10 ** rng.uniform(0, 2)) for name in timed},
            "reads": int(rng.integers(1, 17)),
            "calls": int(rng.integers(1, 17)),
            "cores": int(rng.integers(1, 17)),
            "prefetch": int(rng.integers(0, 5)),
            "shuffle": int(rng.integers(1, 33)),
            "jitter": float(rng.uniform()),
            "cache": str(rng.choice(["nothing", "nothing", "decoded", "augmented"])),
        }
        run = run_belt(case, piece.data)
        truth = {
            "reads": np.stack([run.read_begins, run.read_ends], axis=1),
            "maps": np.stack([run.map_begins, run.map_ends], axis=1),
            **{name: getattr(run, name) for name in (*same, "ends", "order", "bottleneck")},
            "batchSeconds": run.batch_seconds,
            "needs": run.machine_seconds,
            "starved": run.starved,
        }
        cases.append([case, truth])
    return {"data": piece.data, "belts": cases}


def list_shards() -> Groups:
    orders = EXAMPLES["sharding"]().data["orders"]
    cases = [
        shard(count, workers, policy, batch, orders)
        for policy in ("FILE", "DATA", "OFF", "LATE")
        for count in (1, 3, 4, 8)
        for workers in (1, 2, 3, 4)
        for batch in (3, 4, 8)
        if policy != "FILE" or count >= workers
    ]
    return {"data": {"orders": orders}, "shards": cases}


def shard(count, workers, policy, batch, orders) -> list:
    """Return one case: 32 examples in `count` files."""
    files = [part.tolist() for part in np.array_split(np.arange(32), count)]
    kept = shard_examples(files, workers, policy, batch, orders)
    cover = check_cover(kept, range(32))
    cover = {"once": cover.once, "doubled": len(cover.doubled), "lost": cover.lost}
    counts = [sum(map(len, steps)) for steps in kept.values()]
    thrown = [32 - n if n else 0 for n in counts] if policy != "FILE" else [0] * workers
    given = {"count": count, "workers": workers, "policy": policy, "batch": batch}
    return [given, {"files": files, "kept": list(kept.values()), "thrown": thrown, **cover}]


def list_floats() -> Groups:
    rng = np.random.default_rng(8)
    values = [*(10 ** rng.uniform(-9, 6, 300)).tolist(), 1.001, 65504.0, 65519.0, 65520.0]
    values += [2.0**-25, 2.0**-25 * 1.01, 3 * 2.0**-25, 1 + 2.0**-8, 1 + 3 * 2.0**-8, 256.5, 1e-7]
    types = (np.float32, ml_dtypes.bfloat16, np.float16)
    with np.errstate(over="ignore"):
        rounded = [[value, [float(each(value)) for each in types]] for value in values]
    sizes = np.exp2(np.random.default_rng(9).normal(-20, 8, 3000))
    bins, lost = float_line(sizes).data["bins"], []
    for shift in (-9, 0, 12, 32):
        moved = sizes * 2.0**shift
        truth = {"below": np.mean(moved < 2.0**-24), "above": np.mean(moved >= 2.0**16)}
        lost.append([[bins, shift], truth])
    return {"rounded": rounded, "lost": lost}


RIGHT_TEXT = (
    '{"cluster": {"worker": ["node-a:12345", "node-b:12345"]},'
    ' "task": {"type": "worker", "index": 1}}'
)
MISTYPED = r"""
12345=|port|x9|0|70000|12345 |12345,c:1|1:2
node-a=|0.0.0.0|localhost|127.0.0.1|node-b|http://node-a|no de|n@de
node-b=[::1]|127.0.0.1
"index": 1="index": 0|"index": 2|"index": -1|"index": "1"|"index": 1.5|"rank": 1|"index": null
"type": "worker"="type": "workers"|"type": "ps"|"type": "chief"|"job": "worker"|"type": 3
"type": "worker"="type": "evaluator"|"type": "zebra"
"worker": [="workers": [|"ps": [|"chief": [|"master": [|"worker": [3, |"evaluator": ["c:1"], "ps": [
"cluster"="Cluster"|"klaster"|"environment": {}, "cluster"
"task"="tasks"|"me"
["node-a:12345", "node-b:12345"]="node-a:12345"|[]|{}|7|{"1": "a:1"}|["node-a:12345", null]
["node-a:12345", "node-b:12345"]={"0": "node-a:12345", "1": "node-b:12345"}
{"worker": ["node-a:12345", "node-b:12345"]}={}|[]|"node-a:12345"|{"worker": ["node-a:12345"]}
{"type": "worker", "index": 1}={}|1|"worker"|null
"='|”
}}=}|}},|},}
"""  # what is right = what people write instead


def list_texts() -> list[str]:
    """Return TF_CONFIGs as people mistype them: each with one thing wrong, or two."""
    texts = ["", " ", "[]", "3", '"{}"', "node-a:12345", f"'{RIGHT_TEXT}'", RIGHT_TEXT]
    for line in MISTYPED.strip().split("\n"):
        old, _, instead = line.partition("=")
        texts += [RIGHT_TEXT.replace(old, new) for new in instead.split("|")]
    return texts


def list_clusters() -> Groups:
    texts, sound, together = list_texts(), [], []
    assert len(set(texts)) > 60
    checked = {text: [f for f in lint(text) if f.severity == "error"] for text in texts}
    sound = [text for text in texts if not checked[text]]
    for pair in [(first, second) for first in sound for second in sound]:
        between = lint_together(dict(zip(("node-a", "node-b"), pair)))
        faults = [f for name, f in between if name == "together" and f.severity == "error"]
        together.append([pair, list(map(asdict, faults))])
    assert 0 < sum(not truth for _, truth in together) < len(together)
    single = [[text, list(map(asdict, checked[text]))] for text in texts]
    return {"texts": single, "together": together, "clusters": list_claims()}


HERE, THERE = (RIGHT_TEXT.replace('"index": 1', f'"index": {k}') for k in range(2))
NAMED = {"node-a": "10.0.0.5", "node-b": "node-b.lab.example"}


def list_claims() -> list:
    """Return pairs of TF_CONFIGs and what comes of them: a machine may claim the other's task."""
    longer = [re.sub("node-[ab]", lambda found: NAMED[found[0]], text) for text in (HERE, THERE)]
    elsewhere = [text.replace("node-b", "node-c") for text in (HERE, THERE)]
    crossed = [
        {
            "host": f"node-{here}",
            "what": f"worker:{k} lives on node-{there}, and this is node-{here}",
            "cure": f"write index {1 - k}",
        }
        for k, (here, there) in ((1, "ab"), (0, "ba"))
    ]
    forms = [
        edit_cluster(*pair).still.alt.startswith("The cluster forms")
        for pair in ((HERE, THERE), (THERE, HERE))
    ]
    assert forms == [True, False]
    return [
        [[HERE, THERE], {"formed": forms[0]}],
        [
            [THERE, HERE],
            {"formed": forms[1], "between": crossed, "states": ["waits", "waits"]},
        ],
        [longer, {"formed": True}],
        [elsewhere, {"formed": False, "between": [{"cure": "list node-b's own address"}]}],
        [[HERE, HERE], {"states": ["waits", "taken"], "twice": True}],  # it's node-a's task
        [[THERE, THERE], {"states": ["taken", "waits"], "twice": True}],
        [[longer[0]] * 2, {"states": ["twice", "twice"]}],  # an address may be any machine's
    ]


MODELS = {
    "schedule": list_schedules,
    "memory": list_devices,
    "ring": list_all_reduces,
    "arrow": list_updates,
    "step": list_steps,
    "values": list_answers,
    "staleness": list_races,
    "conveyor": list_belts,
    "sharding": list_shards,
    "floats": list_floats,
    "cluster": list_clusters,
    "guess": dict,
}


@pytest.mark.parametrize("model", MODELS)
def test_a_model_computes_what_python_does(model, tmp_path):
    run_in_node(model, MODELS[model](), tmp_path)
