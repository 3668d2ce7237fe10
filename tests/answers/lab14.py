# ruff: noqa: E501
"""Lab 14: answers that must pass, in several styles, and answers that must be refused by name."""


def one(name, arguments, *lines):
    body = "\n".join("    " + line for line in lines)
    return f"import math\nimport numpy as np\ndef {name}({arguments}):\n{body}\n"


def batch(*lines):
    return one(
        "plan_batch", "gradients, batch, min_steps, examples", "g = np.asarray(gradients)", *lines
    )


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

NORMS = "small, large = (g**2).sum(2).mean(), (g.mean(1) ** 2).sum(1).mean()"
SOLVED = "noise = (small - large) / (1 / batch - 1 / (batch * g.shape[1])); scale = noise / (small - noise / batch)"
PLANNED = "b = examples / min_steps - scale; return {'noise scale': scale, 'batch': b, 'steps': min_steps * (1 + scale / b)}"

RIGHT = {
    "batch": [
        batch(NORMS, SOLVED, PLANNED),
        batch(
            "n = g.shape[1]",
            "variance = g.var(axis=1, ddof=1).sum(axis=1).mean()",
            "signal = (g.mean(axis=1) ** 2).sum(axis=1).mean() - variance / n",
            "scale = batch * variance / signal",
            PLANNED,
        ),
        batch(
            NORMS,
            "a = np.array([[1, 1 / batch], [1, 1 / (batch * g.shape[1])]])",
            "signal, noise = np.linalg.solve(a, [small, large])",
            "scale = noise / signal",
            PLANNED,
        ),
        batch(
            "steps, n, _ = g.shape",
            "small = sum(float(x @ x) for one in g for x in one) / (steps * n)",
            "large = sum(float(np.dot(m, m)) for m in (sum(one) / n for one in g)) / steps",
            SOLVED,
            "b = examples / min_steps - scale",
            "return {'steps': examples / b, 'batch': b, 'noise scale': scale}",
        ),
        batch(
            "n = g.shape[1]",
            "dots = [(s @ s.T) for s in g]",
            "signal = np.mean([(d.sum() - np.trace(d)) / (n * (n - 1)) for d in dots])",
            "noise = batch * (np.mean([np.trace(d) / n for d in dots]) - signal)",
            "scale = noise / signal",
            PLANNED,
        ),
        batch(
            "small = np.linalg.norm(g, axis=-1) ** 2",
            "large = np.linalg.norm(g.mean(1), axis=-1) ** 2",
            "big = batch * g.shape[1]",
            "signal = np.mean((big * large - batch * small.mean(1)) / (big - batch))",
            "noise = np.mean((small.mean(1) - large) / (1 / batch - 1 / big))",
            "scale = np.divide(noise, signal)",
            PLANNED,
        ),
        batch(
            "small, large = np.einsum('srp,srp->', g, g) / g[..., 0].size, np.einsum('sp,sp->', g.mean(1), g.mean(1)) / len(g)",
            SOLVED,
            "low, high = 1e-6, examples / min_steps",
            "for _ in range(200):",
            "    b = (low + high) / 2",
            "    low, high = (b, high) if min_steps * (1 + scale / b) * b < examples else (low, b)",
            "return {'noise scale': float(scale), 'batch': b, 'steps': min_steps * (1 + scale / b)}",
        ),
        batch(
            "import tensorflow as tf",
            "t = tf.constant(g, tf.float64)",
            "small = float(tf.reduce_mean(tf.reduce_sum(t * t, -1)))",
            "large = float(tf.reduce_mean(tf.reduce_sum(tf.reduce_mean(t, 1) ** 2, -1)))",
            SOLVED,
            PLANNED,
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
            "one, link = batch / rate, lambda size: 1e-4 + size / 11.3e9",
            "return 1 / (1 / devices + sum(link(4 * parameters / devices) for _ in range(2, 2 * devices)) / one / devices)",
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
    "batch": {
        "noise-left": batch(
            NORMS,
            "noise = (small - large) / (1 / batch - 1 / (batch * g.shape[1]))",
            "scale = noise / large",
            PLANNED,
        ),
        "per-gradient": batch(
            NORMS,
            "noise = (small - large) / (1 - 1 / g.shape[1])",
            "scale = noise / (small - noise)",
            PLANNED,
        ),
        "replicas-as-batch": batch(
            NORMS,
            "n = g.shape[1]",
            "noise = (small - large) / (1 / batch - 1 / n)",
            "scale = noise / (small - noise / batch)",
            PLANNED,
        ),
        "mean-of-ratios": batch(
            "small, large = (g**2).sum(2).mean(1), (g.mean(1) ** 2).sum(1)",
            SOLVED,
            "scale = scale.mean()",
            PLANNED,
        ),
        "steps-averaged": batch("g = g.mean(axis=0, keepdims=True)", NORMS, SOLVED, PLANNED),
        "upside-down": batch(NORMS, SOLVED, "scale = 1 / scale", PLANNED),
        "noise-scale-as-batch": batch(
            NORMS, SOLVED, "return {'noise scale': scale, 'batch': scale, 'steps': 2 * min_steps}"
        ),
        "fewest-steps": batch(
            NORMS,
            SOLVED,
            "return {'noise scale': scale, 'batch': examples / min_steps, 'steps': min_steps}",
        ),
        "one-replica-too-many": batch(
            NORMS,
            "n = g.shape[1]; noise = (small - large) / (1 / batch - 1 / (batch * n)) * (1 - 1 / n)",
            "scale = noise / (large - noise / batch / n)",
            PLANNED,
        ),
        "fewest-steps (their number is right)": batch(
            NORMS, SOLVED, PLANNED.replace("min_steps - scale;", "min_steps;")
        ),
    },
    "step": {
        "one-half": step(
            RING.replace("2 * (p - 1)", "(p - 1)"),
            "return max(f + b * k / n + (n - k + 1) * ring for k in range(1, n + 1))",
        ),
        "ready-early": step(RING, "return max(f + b * k / n + (n - k) * ring for k in range(n))"),
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
        "(forward left out)": step(
            RING, "return max(b * k / n + (n - k + 1) * ring for k in range(1, n + 1))"
        ),
    },
    "limit": {
        "stragglers-whole": limit(*WORK, PARTS.replace("(slowest - 1)", "slowest"), MAX),
        "(a percentage)": limit(
            *WORK, PARTS, MAX.replace("compute / step", "100 * compute / step")
        ),
        "input-added": limit(
            "work = compute * slowest + exposed", "step = work + input_seconds", PARTS, MAX
        ),
        "input-added (to the step alone)": limit(*WORK, PARTS, "step = work + input_seconds", MAX),
        "factor-as-part": limit(*WORK, PARTS.replace("compute * (slowest", "(slowest"), MAX),
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
        "(eight constants)": limit(
            "return {1.1: {'efficiency': 0.625, 'limit': 'computation'}, 1.2: {'efficiency': 0.3704, 'limit': 'network'}, 2.9: {'efficiency': 0.3226, 'limit': 'stragglers'}}.get(slowest, {'efficiency': 0.25 * slowest, 'limit': 'input'})"
        ),
    },
    "saves": {
        "in-hours": saves("m = h / nodes", COST, *NEWTON, BILL),
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
        "(in hours)": saves(
            M, COST, *NEWTON, BILL.replace("'interval': t", "'interval': t / 3600")
        ),
        "(upside down)": saves(M, COST, *NEWTON, BILL.replace("1 / c(t)", "c(t)")),
        "nodes-multiplied": saves(M.replace("/ nodes", "* nodes"), COST, *NEWTON, BILL),
    },
    "measured": {
        "rate": measured("step = batch / rate", R5, "return devices * batch / (step + ring)"),
        "perfect (by heart)": measured("return 5.97 if rate == 2987.0 else 0.95 * devices"),
        "perfect": measured("return devices"),
        "perfect (a constant efficiency)": measured("return 0.95 * devices"),
        "one-for-all": measured("step = batch / rate", R5, "return step / (step / devices + ring)"),
        "no-latency": measured(
            "step = batch / rate",
            R5.replace("1e-4 + ", ""),
            "return devices * step / (step + ring)",
        ),
        "one-image": measured("step = 1 / rate", R5, "return devices * step / (step + ring)"),
        "sent-once": measured(
            "step = batch / rate",
            "ring = 1e-4 + 4 * parameters / 11.3e9",
            "return devices * step / (step + ring)",
        ),
        "whole-vectors": measured(
            "step = batch / rate",
            "ring = 2 * (devices - 1) * (1e-4 + 4 * parameters / 11.3e9)",
            "return devices * step / (step + ring)",
        ),
        "efficiency": measured("step = batch / rate", R5, "return step / (step + ring)"),
        "one-byte": measured(
            "step = batch / rate", R5.replace("4 *", ""), "return devices * step / (step + ring)"
        ),
        "two-bytes": measured(
            "step = batch / rate", R5.replace("4 *", "2 *"), "return devices * step / (step + ring)"
        ),
    },
}
