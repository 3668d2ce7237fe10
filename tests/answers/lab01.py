"""Lab 01: answers that must pass, in several styles, and answers that must be refused by name."""

EPOCH_IMPORTS = "import math\nimport numpy as np\n"
SPLIT = """
def split(count, parts):
    return [count // parts + (i < count % parts) for i in range(parts)]
"""
CHOOSE = """
def choose_parallelism(parameters, activation_gib, device_gib, copy_hours, allowed_hours):
    need = {bytes} * parameters / 2**30 + {activations} * activation_gib
    if need <= device_gib or {ignore}:
        return "one device" if copy_hours <= allowed_hours else "{late}"
    return "model" if copy_hours <= allowed_hours else "{late_split}"
"""
SCALE = """
def measure_scaling(replicas, step_seconds):
    k = {k}
    pairs = list(zip(replicas, step_seconds))
    ups = [{up} for n, t in pairs]
    return {form}([ups, [{efficiency} for u, n in zip(ups, replicas)]])
"""


def choose(bytes=16, activations=1, ignore=False, late="data", late_split="both"):
    return CHOOSE.format(**locals())


def scale(
    k="replicas.index(1)",
    up="n * step_seconds[k] / t",
    efficiency="u / n",
    form="list",
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
    for card in range(batch_size):
        sizes[card % len(sizes)] += 1
    return sizes
"""
CEILINGS = """
def replica_batch_sizes(batch_size, workers, replicas_per_worker):
    left, sizes = batch_size, []
    for still in range(workers * replicas_per_worker, 0, -1):
        sizes.append(-(-left // still))
        left -= sizes[-1]
    return tuple(sizes)
"""
EDGES = """
import numpy as np
def replica_batch_sizes(batch_size, workers, replicas_per_worker):
    replicas = workers * replicas_per_worker
    share, rest = np.divmod(batch_size, replicas)
    at = np.arange(replicas + 1)
    return np.diff(np.minimum(at * (share + 1), at * share + rest))
"""
APPEND = """
def replica_batch_sizes(batch_size, workers, replicas_per_worker):
    sizes = []
    for worker in range(workers):
        for replica in range(replicas_per_worker):
            number = worker * replicas_per_worker + replica
            size = batch_size // (workers * replicas_per_worker)
            if number < batch_size - size * workers * replicas_per_worker:
                size += 1
            sizes.append(size)
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
def measure_scaling(replicas, step_seconds):
    images = [n / t for n, t in zip(replicas, step_seconds)]
    alone = dict(zip(replicas, images))[1]
    speed_ups = [rate / alone for rate in images]
    return speed_ups, [s / n for s, n in zip(speed_ups, replicas)]
"""
FROM_EFFICIENCY = """
import numpy as np
def measure_scaling(replicas, step_seconds):
    replicas, step_seconds = np.array(replicas), np.array(step_seconds)
    efficiencies = step_seconds[replicas == 1][0] / step_seconds
    return efficiencies * replicas, efficiencies
"""
BATCH_SCALING = """
def measure_scaling(replicas, step_seconds):
    b, one = 64, None
    for n, t in zip(replicas, step_seconds):
        if n == 1:
            one = b / t
    ups, effs = [], []
    for n, t in zip(replicas, step_seconds):
        ups.append(n * b / t / one)
        effs.append(ups[-1] / n)
    return tuple(ups), tuple(effs)
"""
SORTED_SCALING = """
import numpy as np
def measure_scaling(replicas, step_seconds):
    order = np.argsort(replicas)
    t1 = step_seconds[order[0]]
    table = np.array([[n * t1 / t, t1 / t] for n, t in zip(replicas, step_seconds)])
    return table.T
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
        batches("tuple(map(len, np.array_split(np.zeros(n), w * r)))"),
        batches("np.bincount(np.arange(n) % (w * r), minlength=w * r)"),
        batches("[float(s) for s in split(n, w * r)]"),
        batches("[len(range(k, n, w * r)) for k in range(w * r)]"),
        batches("[n // (w * r) + 1] * (n % (w * r)) + [n // (w * r)] * (w * r - n % (w * r))"),
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
        RATES,
        FROM_EFFICIENCY,
        BATCH_SCALING,
        SORTED_SCALING,
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
        "one-left-alone": epoch("n // b + (n % b > 1), n % b or b"),
    },
    "batches": {
        "one-worker": batches("split(n, r)"),
        "per-worker": batches("split(n, w)"),
        "rounded-down": batches("[n // (w * r)] * (w * r)"),
        "rounded-up": batches("[math.ceil(n / (w * r))] * (w * r)"),
        "rest-to-last": batches("[n // (w * r)] * (w * r - 1) + [n // (w * r) + n % (w * r)]"),
        "worker-by-worker": batches("[s for p in split(n, w) for s in split(p, r)]"),
        "larger-last": batches("split(n, w * r)[::-1]"),
        "rest-to-first": batches("[n // (w * r) + n % (w * r)] + [n // (w * r)] * (w * r - 1)"),
        "(a generator)": batches("(s for s in split(n, w * r))"),
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
        "memory-ignored (sharded)": choose(ignore=True).replace('"both"', '"sharded data"'),
        "(sharded in any case)": choose(late="sharded data", late_split="sharded data"),
    },
    "scaling": {
        "times-not-images": scale(up="step_seconds[k] / t"),
        "upside-down": scale(up="n * t / step_seconds[k]"),
        "first-is-reference": scale(k="0", up="n / replicas[0] * step_seconds[0] / t"),
        "first-is-reference (of one replica)": scale(k="0"),
        "not-divided": scale(efficiency="u"),
        "percentage": scale(efficiency="100 * u / n"),
        "swapped": scale(efficiency="u").replace(
            "list([ups, [u for u, n in zip(ups, replicas)]])",
            "[u / n for u, n in zip(ups, replicas)], ups",
        ),
        "(maps)": scale(form="lambda pair: (map(float, pair[0]), map(float, pair[1]))").replace(
            "lambda pair: (map(float, pair[0]), map(float, pair[1]))(",
            "(lambda pair: (map(float, pair[0]), map(float, pair[1])))(",
        ),
    },
}
