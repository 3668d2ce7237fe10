# ruff: noqa: E501
"""Lab 01: answers that must pass, in several styles, and answers that must be refused by name."""

EPOCH_IMPORTS = "import math\nimport numpy as np\n"
SPLIT = """
def up(count, parts):
    return -(-count // parts)
def split(count, parts):
    return [min(up(count, parts), max(count - k * up(count, parts), 0)) for k in range(parts)]
"""
CHOOSE = """
def choose_parallelism(parameters, activation_gib, device_gib, copy_hours, allowed_hours):
    need = {bytes} * parameters / 2**30 + {activations} * activation_gib
    if need <= device_gib or {ignore}:
        return "one device" if copy_hours <= allowed_hours else "{late}"
    return "model" if copy_hours <= allowed_hours else "{late_split}"
"""
SCALE = """
def choose_replicas(replicas, step_seconds, images, images_per_replica, allowed_hours):
    k = {k}
    ups = [{up} for n, t in zip(replicas, step_seconds)]
    best, lowest = None, float("inf")
    for n, t in zip(replicas, step_seconds):
        hours = {steps} * t / 3600
        if {late}:
            continue
        if {rank} < lowest:
            best, lowest = n, {rank}
    efficiencies = [{efficiency} for u, n in zip(ups, replicas)]
    return {{"speed_ups": {form}(ups), "efficiencies": {form}(efficiencies), "choice": best}}
"""


def choose(bytes=16, activations=1, ignore=False, late="data", late_split="both"):
    return CHOOSE.format(**locals())


def scale(
    k="replicas.index(1)",
    up="n * step_seconds[k] / t",
    efficiency="u / n",
    form="list",
    steps="-(-images // (n * images_per_replica))",
    late="hours > allowed_hours",
    rank="n * hours",
):
    return SCALE.format(**locals())


def one_line(function, arguments, expression, before=""):
    return f"{before}\ndef {function}({arguments}):\n    return {expression}\n"


def epoch(expression):
    return one_line("plan_epoch", "n, b", expression, EPOCH_IMPORTS)


def batches(expression):
    return one_line("replica_batch_sizes", "n, w, r", expression, EPOCH_IMPORTS + SPLIT)


LOOP_EPOCH = """
def plan_epoch(examples, global_batch_size):
    steps, left = 0, examples
    while left > global_batch_size:
        left -= global_batch_size
        steps += 1
    return steps + 1, left
"""
IF_EPOCH = """
def plan_epoch(examples, global_batch_size):
    rest = examples % global_batch_size
    if rest == 0:
        return examples // global_batch_size, global_batch_size
    return examples // global_batch_size + 1, rest
"""
SIZES_EPOCH = """
def plan_epoch(examples, global_batch_size):
    ids = list(range(examples))
    cut = [ids[k:k + global_batch_size] for k in range(0, examples, global_batch_size)]
    return len(cut), len(cut[-1])
"""
CARDS = """
def replica_batch_sizes(batch_size, workers, replicas_per_worker):
    sizes = [0] * (workers * replicas_per_worker)
    full, at = (batch_size + len(sizes) - 1) // len(sizes), 0
    for card in range(batch_size):
        at += sizes[at] == full
        sizes[at] += 1
    return sizes
"""
CEILINGS = """
import math
def replica_batch_sizes(batch_size, workers, replicas_per_worker):
    share, left, sizes = math.ceil(batch_size / workers / replicas_per_worker), batch_size, []
    while len(sizes) < workers * replicas_per_worker:
        sizes.append(share if left > share else left)
        left -= sizes[-1]
    return tuple(sizes)
"""
EDGES = """
import numpy as np
def replica_batch_sizes(batch_size, workers, replicas_per_worker):
    share = int(np.ceil(batch_size / (workers * replicas_per_worker)))
    starts = share * np.arange(workers * replicas_per_worker).reshape(workers, -1)
    return np.clip(batch_size - starts, 0, share).ravel()
"""
APPEND = """
def replica_batch_sizes(batch_size, workers, replicas_per_worker):
    share, rest = divmod(batch_size, workers * replicas_per_worker)
    if rest:
        share += 1
    sizes = []
    for worker in range(workers):
        for replica in range(replicas_per_worker):
            before = sum(sizes)
            sizes.append(0 if before >= batch_size else min(share, batch_size - before))
    return sizes
"""
BYTES_TABLE = """
def choose_parallelism(parameters, activation_gib, device_gib, copy_hours, allowed_hours):
    table = {(True, True): "one device", (True, False): "data",
             (False, True): "model", (False, False): "both"}
    used = parameters * (4 + 4 + 4 + 4) + activation_gib * 1024**3
    return table[used <= device_gib * 1024**3, copy_hours <= allowed_hours]
"""
SHARDED = """
def choose_parallelism(parameters, activation_gib, device_gib, copy_hours, allowed_hours):
    if parameters * 16 > (device_gib - activation_gib) * 2**30:
        return "sharded data"
    return "data" if copy_hours > allowed_hours else "one device"
"""
SHARDED_LATE = """
def choose_parallelism(parameters, activation_gib, device_gib, copy_hours, allowed_hours):
    too_big = activation_gib + 4 * 4 * parameters / 1024 / 1024 / 1024 > device_gib
    too_slow = copy_hours > allowed_hours
    if too_big and too_slow:
        return "Sharded data"
    if too_big:
        return "model"
    return "data" if too_slow else "one device"
"""
NESTED = """
def choose_parallelism(parameters, activation_gib, device_gib, copy_hours, allowed_hours):
    weight = gradient = moment = 4
    state = parameters * (weight + gradient + 2 * moment)
    room = (device_gib - activation_gib) * 2**30
    words = ("one device", "data") if state <= room else ("model", "both")
    return words[int(copy_hours > allowed_hours)]
"""
FRACTIONS = """
from fractions import Fraction
def choose_parallelism(parameters, activation_gib, device_gib, copy_hours, allowed_hours):
    need = Fraction(16 * parameters, 2**30) + Fraction(activation_gib)
    row = 0 if need <= device_gib else 2
    return ["one device", "data", "model", "both"][row + (copy_hours > allowed_hours)]
"""
RATES = """
def choose_replicas(replicas, step_seconds, images, images_per_replica, allowed_hours):
    rates = [n * images_per_replica / t for n, t in zip(replicas, step_seconds)]
    alone = dict(zip(replicas, rates))[1]
    speed_ups = [rate / alone for rate in rates]
    runs = []
    for n, t in zip(replicas, step_seconds):
        steps, rest = divmod(images, n * images_per_replica)
        runs.append((n * (steps + bool(rest)) * t, n, (steps + bool(rest)) * t))
    runs = [run for run in runs if run[2] <= 3600 * allowed_hours]
    choice = min(runs)[1] if runs else None
    return dict(speed_ups=speed_ups, efficiencies=[s / n for s, n in zip(speed_ups, replicas)], choice=choice)
"""
VECTORS = """
import numpy as np
def choose_replicas(replicas, step_seconds, images, images_per_replica, allowed_hours):
    n, t = np.array(replicas), np.array(step_seconds)
    efficiencies = t[n == 1][0] / t
    hours = np.ceil(images / n / images_per_replica) * t / 3600
    cost = np.where(hours <= allowed_hours, n * hours, np.inf)
    choice = None if np.isinf(cost).all() else n[cost.argmin()]
    return {"choice": choice, "speed_ups": efficiencies * n, "efficiencies": efficiencies}
"""
SORTED = """
def choose_replicas(replicas, step_seconds, images, images_per_replica, allowed_hours):
    seconds = dict(zip(replicas, step_seconds))
    def hours(n):
        return (images + n * images_per_replica - 1) // (n * images_per_replica) * seconds[n] / 3600
    by_price = sorted(seconds, key=lambda n: n * hours(n))
    in_time = [n for n in by_price if not hours(n) > allowed_hours]
    return {"speed_ups": tuple(seconds[1] / seconds[n] * n for n in replicas),
            "efficiencies": tuple(seconds[1] / seconds[n] for n in replicas),
            "choice": next(iter(in_time), None)}
"""
RIGHT = {
    "epoch": [
        epoch("math.ceil(n / b), n - b * (math.ceil(n / b) - 1)"),
        epoch("np.array([-(-n // b), n % b or b], dtype=np.int64)"),
        epoch("[float(len(range(0, n, b))), (n - 1) % b + 1.0]"),
        epoch("(np.int64(-(-n // b)), np.int64(n % b or b))"),
        epoch("(n + b - 1) // b, n - (n - 1) // b * b"),
        LOOP_EPOCH,
        IF_EPOCH,
        SIZES_EPOCH,
    ],
    "batches": [
        batches("[min(up(n, w * r), max(n - k * up(n, w * r), 0)) for k in range(w * r)]"),
        batches("np.diff(np.minimum(np.arange(w * r + 1) * up(n, w * r), n))"),
        batches("[float(s) for s in split(n, w * r)]"),
        batches("[len(range(n)[k * up(n, w * r):(k + 1) * up(n, w * r)]) for k in range(w * r)]"),
        batches("np.bincount(np.arange(n) // max(up(n, w * r), 1), minlength=w * r)"),
        CARDS,
        CEILINGS,
        EDGES,
        APPEND,
    ],
    "parallelism": [
        choose(),
        choose().replace("choose_parallelism", "decide")
        + "\ndef choose_parallelism(*case):\n    return decide(*case).title() + ' '\n",
        "import numpy as np\n"
        + choose().replace("choose_parallelism", "decide")
        + "\ndef choose_parallelism(*case):\n    return np.str_(decide(*case))\n",
        BYTES_TABLE,
        SHARDED,
        SHARDED_LATE,
        NESTED,
        FRACTIONS,
    ],
    "scaling": [
        scale(),
        "import numpy as np\n" + scale(form="np.array"),
        scale(form="tuple"),
        scale(up="round(n * step_seconds[k] / t, 3)"),
        scale(steps="len(range(0, images, n * images_per_replica))"),
        RATES,
        VECTORS,
        SORTED,
    ],
}
WRONG = {
    "epoch": {
        "rest-dropped": epoch("n // b, b"),
        "rounded-down": epoch("n // b, n % b or b"),
        "zero-left-over": epoch("math.ceil(n / b), n % b"),
        "one-too-many": epoch("n // b + 1, n % b"),
        "last-is-full": epoch("math.ceil(n / b), b"),
        "whole-and-rest": epoch("divmod(n, b)"),
        "rounded-to-nearest": epoch("round(n / b), n % b or b"),
        "what-is-missing": epoch("-(-n // b), -n % b"),
        "one-left-alone": epoch("n // b + (n % b > 1), n % b or b"),
        "(larger than any float)": epoch("2**4000, 2**4000"),
        "(not a whole number)": epoch("n / b, n % b or b"),
    },
    "batches": {
        "one-worker": batches("split(n, r)"),
        "per-worker": batches("split(n, w)"),
        "rounded-down": batches("[n // (w * r)] * (w * r)"),
        "rounded-up": batches("[math.ceil(n / (w * r))] * (w * r)"),
        "below-nothing": batches("[min(up(n, w * r), n - k * up(n, w * r)) for k in range(w * r)]"),
        "below-nothing (at the last replica)": batches(
            "[up(n, w * r)] * (w * r - 1) + [n - up(n, w * r) * (w * r - 1)]"
        ),
        "one-more-each": batches("tuple(map(len, np.array_split(np.zeros(n), w * r)))"),
        "rest-to-last": batches("[n // (w * r)] * (w * r - 1) + [n // (w * r) + n % (w * r)]"),
        "worker-by-worker": batches("[s for p in split(n, w) for s in split(p, r)]"),
        "added": batches("split(n, w + r)"),
        "larger-last": batches("split(n, w * r)[::-1]"),
        "rest-to-first": batches("[n // (w * r) + n % (w * r)] + [n // (w * r)] * (w * r - 1)"),
        "(a generator)": batches("(s for s in split(n, w * r))"),
        "(printed)": batches("print(split(n, w * r))"),
    },
    "parallelism": {
        "weights-only": choose(bytes=4),
        "no-activations": choose(activations=0),
        "memory-ignored": choose(ignore=True),
        "time-ignored": choose(late="one device", late_split="model"),
        "split-needlessly": choose(late="model", late_split="model"),
        "no-weight": choose(bytes=12),
        "no-gradient-no-state": choose(bytes=8),
        "decimal-gigabytes": choose().replace("2**30", "10**9"),
        "no-room-to-spare": choose().replace("need <= device", "need < device"),
        "no-time-to-spare": choose().replace("copy_hours <=", "copy_hours <"),
        "time-first": choose().replace(
            "    need = ", "    if copy_hours > allowed_hours: return 'data'\n    need = "
        ),
        "memory-ignored (sharded)": choose(ignore=True).replace('"both"', '"sharded data"'),
        "(two words exchanged)": choose(late_split="model").replace('"model" if', '"both" if'),
        "(sharded in any case)": choose(late="sharded data", late_split="sharded data"),
    },
    "scaling": {
        "times-not-images": scale(up="step_seconds[k] / t"),
        "upside-down": scale(up="n * t / step_seconds[k]"),
        "first-is-reference": scale(k="0", up="n / replicas[0] * step_seconds[0] / t"),
        "first-is-reference (of one replica)": scale(k="0"),
        "not-divided": scale(efficiency="u"),
        "percentage": scale(efficiency="100 * u / n"),
        "seconds-not-hours": scale(late="3600 * hours > allowed_hours"),
        "minutes-not-hours": scale(late="60 * hours > allowed_hours"),
        "efficiency-times-n": scale(efficiency="u * n"),
        "fastest": scale(rank="hours"),
        "too-late": scale(late="False"),
        "fewest-replicas": scale(rank="n"),
        "never-none": scale().replace(
            "    efficiencies =",
            "    if best is None: best = min(zip(step_seconds, replicas), key=lambda p: p[0] / p[1])[1]\n"
            "    efficiencies =",
        ),
        "same-steps": scale(steps="-(-images // images_per_replica)"),
        "one-per-step": scale(steps="images / (n * images_per_replica)"),
        "(maps)": scale(form="iter").replace("iter(", "map(float, "),
        "(the choices by heart)": scale().replace(
            '"choice": best',
            '"choice": {(1, 2, 4, 8): 2, (8, 4, 1): 1, (2, 4, 8, 1): 4, (2, 1): None}.get(tuple(replicas), 3)'
            " if 10**6 <= images < 10**7 else images // 300 + 1",
        ),
        "one-per-step (rounded down)": scale(steps="images // (n * images_per_replica)"),
    },
}
REFUSED = {
    "batches": {
        "calls utils.data.shares": """
from utils.data import split_batch
def replica_batch_sizes(batch_size, workers, replicas_per_worker):
    return split_batch(batch_size, workers * replicas_per_worker)
"""
    },
}
