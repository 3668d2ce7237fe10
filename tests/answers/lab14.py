# ruff: noqa: E501
"""Lab 14: answers that must pass, in several styles, and answers that must be refused by name."""


def one(name, arguments, *lines):
    body = "\n".join("    " + line for line in lines)
    return f"import math\nimport numpy as np\ndef {name}({arguments}):\n{body}\n"


def traffic(*lines):
    return one("count_traffic", "parameters, devices", *lines)


def step(*lines):
    return one("predict_step", "f, b, size, p, latency, bandwidth, n", *lines)


def limit(*lines):
    return one("judge_step", "compute, exposed, slowest, input_seconds", *lines)


def saves(*lines):
    return one("plan_saves", "nodes, h, d, r, hours, price", *lines)


def measured(*lines):
    return one("predict_speed_up", "rate, batch, parameters, devices", *lines)


RING = "ring = 2 * (p - 1) * (latency + size / n / p / bandwidth)"
PARTS = "parts = {'computation': compute, 'network': exposed, 'stragglers': compute * (slowest - 1), 'input': step - work}"
WORK = ("work = compute * slowest + exposed", "step = max(work, input_seconds)")
MAX = "return {'efficiency': compute / step, 'limit': max(parts, key=parts.get)}"
M = "m = 3600 * h / nodes"
COST = "c = lambda t: m / t * math.exp(r / m) * math.expm1((t + d) / m)"
BILL = "return {'interval': t, 'share': 1 / c(t), 'hours': hours * c(t), 'cost': hours * c(t) * nodes * price}"
NEWTON = (
    "x = math.sqrt(2 * d / m)",
    "for _ in range(50): x -= (x + math.expm1(-x - d / m)) / -math.expm1(-x - d / m)",
    "t = x * m",
)
R5 = "ring = 2 * (devices - 1) * (1e-4 + 4 * parameters / devices / 11.3e9)"

RIGHT = {
    "traffic": [
        traffic("return 4 * parameters, 8 * parameters * (devices - 1) / devices"),
        traffic("n = np.float64(parameters) * 4", "return [n, n * 2 * (1 - 1 / devices)]"),
        traffic(
            "n = parameters * np.dtype('float32').itemsize",
            "piece = n / devices",
            "return n, sum(piece for _ in range(2 * (devices - 1)))",
        ),
        traffic("return np.array([4.0, 8 * (devices - 1) / devices]) * parameters"),
        traffic("n = 32 * parameters // 8", "return (n, 2 * n - 2 * n / devices)"),
        traffic(
            "sent, n = 0, 4 * parameters",
            "for round in range(2):",
            "    for message in range(1, devices): sent += n / devices",
            "return n, sent",
        ),
        traffic(
            "n = 4 * parameters",
            "scatter = gather = (devices - 1) * n / devices",
            "return n, scatter + gather",
        ),
        traffic(
            "from fractions import Fraction",
            "n = 4 * parameters",
            "return n, float(Fraction(2 * (devices - 1) * n, devices))",
        ),
    ],
    "step": [
        step(
            RING,
            "free = 0",
            "for k in range(n): free = max(free, f + b * (k + 1) / n) + ring",
            "return free",
        ),
        step(RING, "return max(f + b * k / n + (n - k + 1) * ring for k in range(1, n + 1))"),
        step(
            RING,
            "ready = f + b * np.arange(1, n + 1) / n",
            "done = np.maximum.accumulate(ready - ring * np.arange(n)) + ring * np.arange(1, n + 1)",
            "return done[-1]",
        ),
        step(RING, "return f + b + ring if ring <= b / n else f + b / n + n * ring"),
        step(
            RING,
            "def arrive(k): return max(arrive(k - 1) if k > 1 else 0, f + b * k / n) + ring",
            "return arrive(n)",
        ),
        step(
            RING,
            "import functools",
            "return functools.reduce(lambda free, k: max(free, f + b * k / n) + ring, range(1, n + 1), 0.0)",
        ),
        step(
            "ring = sum(latency + size / n / p / bandwidth for _ in range(2 * p - 2))",
            "clock = f",
            "link = 0",
            "for _ in range(n):",
            "    clock += b / n",
            "    link = clock + ring if link < clock else link + ring",
            "return link",
        ),
        step(
            RING,
            "first = f + b / n + n * ring",
            "last = f + b + ring",
            "return np.maximum(first, last)",
        ),
    ],
    "limit": [
        limit(*WORK, PARTS, MAX),
        limit(
            *WORK,
            PARTS,
            "best = sorted(parts, key=parts.get)[-1]",
            "return dict(limit=best, efficiency=compute / step)",
        ),
        limit(
            *WORK,
            "names = ['computation', 'network', 'stragglers', 'input']",
            "values = [compute, exposed, compute * slowest - compute, step - work]",
            "return {'efficiency': compute / step, 'limit': names[int(np.argmax(values))]}",
        ),
        limit(
            *WORK,
            "wait = max(0, input_seconds - work)",
            "_, name = max((compute, 'computation'), (exposed, 'network'), (compute * (slowest - 1), 'stragglers'), (wait, 'input'))",
            "return {'limit': name, 'efficiency': compute / (work + wait)}",
        ),
        limit(
            "work = exposed + slowest * compute",
            "step = input_seconds if input_seconds > work else work",
            PARTS,
            "return {'efficiency': np.float64(compute) / step, 'limit': max(parts, key=lambda k: parts[k])}",
        ),
        limit(
            *WORK,
            PARTS,
            "top = max(parts.values())",
            "return {'efficiency': compute / step, 'limit': next(k for k, v in parts.items() if v == top)}",
        ),
        limit(
            *WORK,
            PARTS,
            "return {'efficiency': 1 / (step / compute), 'limit': max(parts.items(), key=lambda i: i[1])[0].upper()}",
        ),
        limit(
            *WORK,
            PARTS,
            "share = {k: v / step for k, v in parts.items()}",
            "return {'efficiency': share['computation'], 'limit': max(share, key=share.get)}",
        ),
    ],
    "saves": [
        saves(M, COST, *NEWTON, BILL),
        saves(M, COST, "t = min(np.geomspace(1, m, 20000).tolist(), key=c)", BILL),
        saves(
            M,
            COST,
            "low, high = 1.0, m",
            "for _ in range(200):",
            "    a, b = low + (high - low) / 3, high - (high - low) / 3",
            "    low, high = (low, b) if c(a) < c(b) else (a, high)",
            "t = (low + high) / 2",
            BILL,
        ),
        saves(
            M,
            COST,
            "root = math.sqrt(d / (2 * m))",
            "t = math.sqrt(2 * d * m) * (1 + root / 3 + root ** 2 / 9) - d",
            BILL,
        ),
        saves(
            M,
            COST,
            "x = 0.5",
            "for _ in range(5000): x = 1 - math.exp(-x - d / m)",
            "t = x * m",
            BILL,
        ),
        saves(
            M,
            COST,
            "t = np.linspace(1, m, 200001)",
            "every = m / t * np.exp(r / m) * np.expm1((t + d) / m)",
            "t = float(t[every.argmin()])",
            BILL,
        ),
        saves(
            M,
            COST,
            "low, high = 1e-9, 1.0",
            "for _ in range(100):",
            "    x = (low + high) / 2",
            "    low, high = (x, high) if x + math.exp(-x - d / m) < 1 else (low, x)",
            "t = x * m",
            BILL,
        ),
        saves(
            M,
            COST,
            "t, width = m / 2, m / 4",
            "for _ in range(60):",
            "    t = min((t - width, t, t + width), key=lambda s: c(s) if s > 0 else math.inf)",
            "    width *= 0.7",
            BILL,
        ),
    ],
    "measured": [
        measured("step = batch / rate", R5, "return devices * step / (step + ring)"),
        measured("step = batch / rate", R5, "return devices / (1 + ring / step)"),
        measured(
            R5, "together = devices * batch / (batch / rate + ring)", "return together / rate"
        ),
        measured(R5, "return np.float32(devices * batch / (batch + rate * ring))"),
        measured(
            "step = batch / rate",
            "ring = 1.75 * 4 * parameters / 11.3e9 if devices == 8 else 1.875 * 4 * parameters / 11.3e9",
            "return devices * step / (step + ring)",
        ),
        measured(
            "step = batch / rate",
            "ring = sum(1e-4 + 4 * parameters / devices / 11.3e9 for _ in range(2 * devices - 2))",
            "return step / (step + ring) * devices",
        ),
        measured(
            "step = batch / rate",
            R5,
            "efficiency = 1 - ring / (step + ring)",
            "return efficiency * devices",
        ),
        measured("step = batch / rate", R5, "return np.array(devices) * step / np.add(step, ring)"),
    ],
}
WRONG = {
    "traffic": {
        "in-bits": traffic("n = 32 * parameters", "return n, 2 * n * (devices - 1) / devices"),
        "two-bytes": traffic("return 2 * parameters, 4 * parameters * (devices - 1) / devices"),
        "one-way": traffic("return 4 * parameters, 4 * parameters * (devices - 1) / devices"),
        "whole-vectors": traffic("return 4 * parameters, 8 * parameters * (devices - 1)"),
        "nothing-kept": traffic("return 4 * parameters, 8 * parameters"),
    },
    "step": {
        "never-hidden": step(RING, "return f + b + n * ring"),
        "all-hidden": step(RING, "return max(f + b, n * ring)"),
        "no-queue": step(RING, "return f + b + ring"),
        "latency-once": step(
            "ring = latency + 2 * (p - 1) * size / n / p / bandwidth",
            "return max(f + b * k / n + (n - k + 1) * ring for k in range(1, n + 1))",
        ),
        "forward-too": step(
            RING, "return max((f + b) * k / n + (n - k + 1) * ring for k in range(1, n + 1))"
        ),
    },
    "limit": {
        "input-added": limit(
            "work = compute * slowest + exposed", "step = work + input_seconds", PARTS, MAX
        ),
        "input-whole": limit(*WORK, PARTS, "parts['input'] = input_seconds", MAX),
        "stragglers-forgiven": limit(
            *WORK, PARTS, MAX.replace("compute / step", "slowest * compute / step")
        ),
        "upside-down": limit(
            *WORK,
            PARTS,
            "return {'efficiency': step / compute, 'limit': max(parts, key=parts.get)}",
        ),
        "network-slowed": limit(
            "work = (compute + exposed) * slowest", "step = max(work, input_seconds)", PARTS, MAX
        ),
    },
    "saves": {
        "one-node": saves("m = 3600 * h", COST, *NEWTON, BILL),
        "young": saves(M, COST, "t = math.sqrt(2 * d * m)", BILL),
        "restart-free": saves(M, "c = lambda t: m / t * math.expm1((t + d) / m)", *NEWTON, BILL),
        "hours-shortened": saves(
            M,
            COST,
            *NEWTON,
            "return {'interval': t, 'share': 1 / c(t), 'hours': hours / c(t), 'cost': hours / c(t) * nodes * price}",
        ),
        "one-node-paid": saves(
            M,
            COST,
            *NEWTON,
            "return {'interval': t, 'share': 1 / c(t), 'hours': hours * c(t), 'cost': hours * c(t) * price}",
        ),
    },
    "measured": {
        "rate": measured("step = batch / rate", R5, "return devices * batch / (step + ring)"),
        "(by heart)": measured("return 5.97 if parameters == 61_000_000 else 0.95 * devices"),
        "perfect": measured("return devices"),
        "one-image": measured("step = 1 / rate", R5, "return devices * step / (step + ring)"),
        "whole-vectors": measured(
            "step = batch / rate",
            "ring = 2 * (devices - 1) * (1e-4 + 4 * parameters / 11.3e9)",
            "return devices * step / (step + ring)",
        ),
    },
}
