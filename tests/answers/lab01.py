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


RIGHT = {
    "epoch": [
        epoch("math.ceil(n / b), n - b * (math.ceil(n / b) - 1)"),
        epoch("np.array([-(-n // b), n % b or b], dtype=np.int64)"),
        epoch("[float(len(range(0, n, b))), (n - 1) % b + 1.0]"),
        epoch("(np.int64(-(-n // b)), np.int64(n % b or b))"),
    ],
    "batches": [
        batches("tuple(map(len, np.array_split(np.zeros(n), w * r)))"),
        batches("np.bincount(np.arange(n) % (w * r), minlength=w * r)"),
        batches("[float(s) for s in split(n, w * r)]"),
    ],
    "parallelism": [
        choose(),
        choose().replace("choose_parallelism", "decide")
        + "\ndef choose_parallelism(*case):\n    return decide(*case).title() + ' '\n",
        "import numpy as np\n"
        + choose().replace("choose_parallelism", "decide")
        + "\ndef choose_parallelism(*case):\n    return np.str_(decide(*case))\n",
    ],
    "scaling": [
        scale(),
        "import numpy as np\n" + scale(form="np.array"),
        scale(form="tuple"),
        scale(up="round(n * step_seconds[k] / t, 3)"),
    ],
}
WRONG = {
    "epoch": {
        "rest-dropped": epoch("n // b, b"),
        "rounded-down": epoch("n // b, n % b or b"),
        "zero-left-over": epoch("math.ceil(n / b), n % b"),
        "one-too-many": epoch("n // b + 1, n % b"),
        "last-is-full": epoch("math.ceil(n / b), b"),
    },
    "batches": {
        "one-worker": batches("split(n, r)"),
        "per-worker": batches("split(n, w)"),
        "rounded-down": batches("[n // (w * r)] * (w * r)"),
        "rounded-up": batches("[math.ceil(n / (w * r))] * (w * r)"),
        "rest-to-last": batches("[n // (w * r)] * (w * r - 1) + [n // (w * r) + n % (w * r)]"),
        "worker-by-worker": batches("[s for p in split(n, w) for s in split(p, r)]"),
    },
    "parallelism": {
        "weights-only": choose(bytes=4),
        "no-activations": choose(activations=0),
        "memory-ignored": choose(ignore=True),
        "time-ignored": choose(late="one device", late_split="model"),
        "split-needlessly": choose(late="model", late_split="model"),
    },
    "scaling": {
        "times-not-images": scale(up="step_seconds[k] / t"),
        "upside-down": scale(up="n * t / step_seconds[k]"),
        "first-is-reference": scale(k="0", up="n / replicas[0] * step_seconds[0] / t"),
        "not-divided": scale(efficiency="u"),
        "percentage": scale(efficiency="100 * u / n"),
    },
}
