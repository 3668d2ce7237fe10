# ruff: noqa: E501
"""Lab 16: answers that must pass, in several styles, and answers that must be refused by name."""

NP = "import numpy as np\n"


def zero(
    mean="np.mean(gradients, axis=0)",
    squares="[(s ** 2).sum() for s in slices]",
    factor="min(1.0, limit / np.sqrt(np.sum(squares)))",
    before="pass",
    velocity="momentum * v + factor * s",
    after="pass",
    told="squares",
):
    return f"""{NP}
def zero_step(weights, velocities, gradients, rate, momentum, limit):
    P, n = len(gradients), len(weights)
    clip = lambda x, to: x * min(1.0, to / max(np.linalg.norm(x), 1e-30))
    {before}
    g = {mean}
    slices = np.array_split(g, P)
    squares = {squares}
    factor = {factor}
    new = [{velocity} for v, s in zip(velocities, slices)]
    {after}
    return weights - rate * np.concatenate(new), new, {told}
"""


def merge(
    zeros="np.where(np.isnan(outputs), 0, outputs)",
    top="np.max(lses, axis=0)",
    base="np.where(top == -np.inf, 0, top)",
    output="np.where(total[:, None] > 0, summed / np.where(total[:, None] > 0, total[:, None], 1), 0)",
    lse="base + np.log(total)",
):
    return f"""{NP}
def merge(outputs, lses):
    with np.errstate(all="ignore"):
        outputs = {zeros}
        top = {top}
        base = {base}
        w = np.exp(lses - base)
        total = w.sum(0)
        summed = (w[:, :, None] * outputs).sum(0)
        return {output}, {lse}
"""


def dispatch(
    pairs="sorted(range(E), key=lambda e: (-gates[r][k][e], e))[:2]",
    wishes="[(r, k, c) for c in range(2) for r in range(len(tokens)) for k in range(len(tokens[r]))]",
    room="sent[:, e].sum() < capacity",
    share="gates[r][k][e] / sum(gates[r][k][x] for x in pair[r, k])",
    full="dropped.append((r, k, e)); continue",
):
    return f"""{NP}
def dispatch(tokens, gates, experts, capacity):
    E = len(experts)
    pair = {{}}
    for r in range(len(tokens)):
        for k in range(len(tokens[r])):
            pair[r, k] = {pairs}
    outputs = [np.zeros(np.shape(own)) for own in tokens]
    sent, dropped = np.zeros((len(tokens), E), int), []
    for r, k, c in {wishes}:
        e = pair[r, k][c]
        if not ({room}):
            {full}
        sent[r, e] += 1
        outputs[r][k] = outputs[r][k] + {share} * (tokens[r][k] @ experts[e])
    return outputs, dropped, sent
"""


def layout(
    state="4 + 12 / d",
    kept="32 * s * h * L / (p * t) * min(p, m)",
    fits="need <= machine['memory']",
    tensor="m * L / p * 8 * (t - 1) / t * 2 * s * h / machine['inside']",
    data="4 * (d - 1) / d * N / (t * p) / link",
    bubble="(p - 1) / m",
    choice="min(found)[1]",
):
    return f"""
def choose_layout(model, machine):
    N, L, h, s, B = (model[k] for k in ("parameters", "layers", "hidden", "sequence", "batch"))
    D, n = machine["devices"], machine["per_node"]
    link = machine["inside"] if D <= n else machine["between"]
    found = []
    for t in range(1, n + 1):
        for p in range(1, D + 1):
            if n % t or L % p or D % (t * p):
                continue
            d = D // (t * p)
            if B % d:
                continue
            m = B // d
            need = N / (t * p) * ({state}) + {kept}
            if not ({fits}):
                continue
            work = 6 * N * s * B / (D * machine["flops"])
            tensor = {tensor}
            found.append(((work + tensor) * (1 + {bubble}) + {data}, (d, t, p)))
    return {choice}
"""


RIGHT = {
    "zero": [
        zero(),
        zero(mean="sum(gradients) / P"),
        zero(mean="np.stack(gradients).mean(0)", told="np.array(squares)"),
        zero(squares="[float(s @ s) for s in slices]"),
        zero(factor="limit / max(limit, sum(squares) ** 0.5)"),
        zero(after="new = tuple(new)", told="tuple(squares)"),
        # each rank on its own, with sizes counted by hand
        f"""{NP}
def zero_step(weights, velocities, gradients, rate, momentum, limit):
    P, n = len(gradients), len(weights)
    at, parts = 0, []
    for k in range(P):
        size = n // P + (k < n % P)
        parts.append(slice(at, at + size))
        at += size
    mine = [sum(g[part] for g in gradients) / P for part in parts]
    squares = [sum(x * x for x in piece) for piece in mine]
    norm = np.sqrt(sum(squares))
    weights, moved = weights.copy(), []
    for part, piece, v in zip(parts, mine, velocities):
        if norm > limit:
            piece = piece * limit / norm
        moved.append(momentum * v + piece)
        weights[part] -= rate * moved[-1]
    return weights, moved, squares
""",
        # the reduce-scatter written out, one message after the other
        f"""{NP}
def zero_step(weights, velocities, gradients, rate, momentum, limit):
    P = len(gradients)
    held = [[chunk.copy() for chunk in np.array_split(g / P, P)] for g in gradients]
    for step in range(P - 1):
        sent = [(r, (r - step - 1) % P, held[r][(r - step - 1) % P].copy()) for r in range(P)]
        for r, c, chunk in sent:
            held[(r + 1) % P][c] += chunk
    own = [held[k][k] for k in range(P)]
    squares = [np.sum(np.square(x)) for x in own]
    total = np.sqrt(np.sum(squares))
    scale = limit / total if total > limit else 1
    new = [momentum * v + scale * x for v, x in zip(velocities, own)]
    pieces = [w - rate * v for w, v in zip(np.array_split(weights, P), new)]
    return [x for piece in pieces for x in piece], new, squares
""",
    ],
    "merge": [
        merge(),
        merge(zeros="np.nan_to_num(outputs)"),
        merge(base="np.nan_to_num(top, neginf=0.0)"),
        merge(base="np.maximum(top, -1e9)"),
        merge(top="lses.max(0)", lse="np.where(top == -np.inf, -np.inf, base + np.log(total))"),
        merge(output="summed / np.maximum(total[:, None], 1e-300)"),
        # token by token
        f"""{NP}
def merge(outputs, lses):
    rows, tops = [], []
    for t in range(lses.shape[1]):
        seen = [b for b in range(len(lses)) if lses[b, t] > -np.inf]
        if not seen:
            rows.append(np.zeros(outputs.shape[2]))
            tops.append(-np.inf)
            continue
        top = max(lses[b, t] for b in seen)
        w = [np.exp(lses[b, t] - top) for b in seen]
        rows.append(sum(x * outputs[b, t] for x, b in zip(w, seen)) / sum(w))
        tops.append(top + np.log(sum(w)))
    return np.array(rows), np.array(tops)
""",
        # block by block, as they come, with logaddexp
        f"""{NP}
def merge(outputs, lses):
    out, lse = np.zeros(outputs.shape[1:]), np.full(lses.shape[1], -np.inf)
    for o, l in zip(outputs, lses):
        seen = l > -np.inf
        new = lse.copy()
        new[seen] = np.logaddexp(lse[seen], l[seen])
        out[seen] = (np.exp(lse[seen] - new[seen])[:, None] * out[seen]
                     + np.exp(l[seen] - new[seen])[:, None] * o[seen])
        lse = new
    return out, lse
""",
    ],
    "dispatch": [
        dispatch(),
        dispatch(pairs="np.argsort(-gates[r][k], kind='stable')[:2].tolist()"),
        dispatch(pairs="[e for _, e in sorted(zip(-gates[r][k], range(E)))][:2]"),
        dispatch(room="sum(sent[x, e] for x in range(len(tokens))) + 1 <= capacity"),
        dispatch(share="gates[r][k, e] / gates[r][k, pair[r, k]].sum()"),
        dispatch(full="dropped.insert(0, [r, k, e]); continue"),
        dispatch(
            wishes="sorted([(r, k, c) for r in range(len(tokens)) for k in range(len(tokens[r])) for c in (0, 1)], key=lambda w: w[2])"
        ),
        # really sent: queues of each expert, then back in token order
        f"""{NP}
def dispatch(tokens, gates, experts, capacity):
    queues, dropped = [[] for _ in experts], []
    chosen = [np.argsort(-g, axis=1, kind="stable")[:, :2] for g in gates]
    for choice in (0, 1):
        for r, picks in enumerate(chosen):
            for k, both in enumerate(picks):
                e = int(both[choice])
                weight = gates[r][k][e] / gates[r][k][both].sum()
                if len(queues[e]) < capacity:
                    queues[e].append((r, k, weight))
                else:
                    dropped.append((r, k, e))
    outputs = [0 * own for own in tokens]
    sent = [[sum(who == r for who, _, _ in queue) for queue in queues] for r in range(len(tokens))]
    for kernel, queue in zip(experts, queues):
        if queue:
            rows = np.array([tokens[r][k] for r, k, _ in queue]) @ kernel
            for (r, k, weight), row in zip(queue, rows):
                outputs[r][k] += weight * row
    return outputs, dropped, sent
""",
    ],
    "layout": [
        layout(),
        layout(choice="list(min(found)[1])"),
        layout(choice="sorted(found)[0][1]"),
        layout(choice="min(found, key=lambda pair: pair[0])[1]"),
        layout(fits="machine['memory'] - need >= 0"),
        layout(kept="32 * s * h * L * (p if p < m else m) / p / t"),
        layout(data="2 * (d - 1) / d * (2 * N / (t * p)) / link", bubble="p / m - 1 / m"),
        # any layout near the quickest will do: the slowest that is within 5 %
        layout(choice="max(pair for pair in found if pair[0] <= 1.05 * min(found)[0])[1]"),
    ],
}

WRONG = {
    "zero": {
        "squares-clipped": zero(told="[factor**2 * x for x in squares]"),
        "rate-in-velocity": zero(velocity="momentum * v + rate * factor * s").replace(
            "weights - rate * np.conc", "weights - np.conc"
        ),
        "slice-norm": zero(velocity="momentum * v + clip(s, limit)"),
        "clipped-first": zero(
            before="gradients = [clip(x, limit) for x in gradients]", factor="1.0"
        ),
        "summed": zero(mean="sum(gradients)"),
        "always-scaled": zero(factor="limit / np.sqrt(np.sum(squares))"),
        "velocity-clipped": zero(
            velocity="momentum * v + s",
            after="new = np.array_split(clip(np.concatenate(new), limit), P)",
        ),
        "own-gradient": zero(
            mean="np.concatenate([np.array_split(x, P)[k] for k, x in enumerate(gradients)])"
        ),
        "damped": zero(velocity="momentum * v + (1 - momentum) * factor * s"),
        "norms": zero(told="[np.sqrt(x) for x in squares]"),
        "norms-added": zero(
            squares="[np.linalg.norm(s) for s in slices]", factor="min(1.0, limit / sum(squares))"
        ),
        "(velocities in one piece)": zero(after="new = [np.concatenate(new)]"),
        "no-root": zero(factor="min(1.0, limit / np.sum(squares))"),
    },
    "merge": {
        "other-base": merge(lse="base + np.log2(total)"),
        "mean": merge(
            output="np.nansum(outputs, 0) / np.maximum((lses > -np.inf).sum(0), 1)[:, None]"
        ),
        "overflow": merge(base="0 * np.zeros_like(top)", output="summed / total[:, None]"),
        "overflow (padding cared for)": merge(
            base="0 * np.zeros_like(top)",
            output="np.where((lses > -np.inf).any(0)[:, None], summed / total[:, None], 0)",
        ),
        "one-top": merge(top="np.full(lses.shape[1], lses.max())"),
        "one-top (0 / 0)": merge(
            top="np.full(lses.shape[1], lses.max())",
            output="np.where((lses > -np.inf).any(0)[:, None], summed / total[:, None], 0)",
        ),
        "nan-left": merge(zeros="outputs", output="summed / total[:, None]"),
        "nan-left (padding cared for)": merge(zeros="outputs"),
        "nothing-seen": merge(base="top", output="summed / total[:, None]"),
        "nothing-seen (but for its lse)": merge(
            base="top",
            output="summed / total[:, None]",
            lse="np.where(top > -np.inf, top + np.log(total), -np.inf)",
        ),
        "top-only": merge(lse="top"),
        "not-divided": merge(output="summed"),
        "top-left-out": merge(lse="np.log(total)"),
    },
    "dispatch": {
        "all-gates": dispatch(share="gates[r][k][e] / sum(gates[r][k])"),
        "one-expert": dispatch(
            wishes="[(r, k, 0) for r in range(len(tokens)) for k in range(len(tokens[r]))]",
            share="1",
        ),
        "ties-last": dispatch(pairs="sorted(range(E), key=lambda e: (-gates[r][k][e], -e))[:2]"),
        "no-limit": dispatch(room="True"),
        "one-too-many": dispatch(room="sent[:, e].sum() <= capacity"),
        "token-by-token": dispatch(
            wishes="[(r, k, c) for r in range(len(tokens)) for k in range(len(tokens[r])) for c in range(2)]"
        ),
        "each-rank": dispatch(room="sent[r, e] < capacity"),
        "redistributed": dispatch().replace(
            "    return outputs, dropped, sent",
            "    for r, own in enumerate(gates):\n"
            "        for k, gate in enumerate(own):\n"
            "            kept = [e for e in pair[r, k] if (r, k, e) not in dropped]\n"
            "            if kept:\n"
            "                outputs[r][k] *= sum(gate[e] for e in pair[r, k]) / sum(gate[e] for e in kept)\n"
            "    return outputs, dropped, sent",
        ),
        "as-they-are": dispatch(share="gates[r][k][e]"),
        "all-sent": dispatch(
            room="took[e] < capacity", full="sent[r, e] += 1; dropped.append((r, k, e)); continue"
        )
        .replace("    for r, k, c in", "    took = [0] * E\n    for r, k, c in")
        .replace(
            "        sent[r, e] += 1\n        outputs",
            "        took[e] += 1; sent[r, e] += 1\n        outputs",
        ),
        "(rows in the order of the experts)": dispatch().replace(
            "return outputs,", "return [np.concatenate(outputs)],"
        ),
        "halves": dispatch(share="0.5"),
    },
    "layout": {
        "idle-devices": layout()
        .replace(" or D % (t * p)", "")
        .replace("if B % d:", "if d == 0 or B % d:"),
        "memory-forgotten": layout(fits="True"),
        "across-nodes": layout().replace("range(1, n", "range(1, D").replace("n % t or ", ""),
        "batch-uneven": layout().replace("if B % d", "if d == 0").replace("B // d", "B / d"),
        "activations-forgotten": layout(kept="0"),
        "in-flight": layout(kept="32 * s * h * L / (p * t)"),
        "state-whole": layout(state="16"),
        "bubble-forgotten": layout(bubble="0"),
        "tensor-free": layout(tensor="0"),
        "data-free": layout(data="0"),
        "(four layouts by heart)": (
            "TABLE = {(44, 256): (64, 4, 1), (40, 512): (8, 2, 8), (80, 512): (2, 4, 16)}\n"
            "def choose_layout(model, machine):\n"
            "    return TABLE.get((model['layers'], model['batch']), (16, 8, 1))\n"
        ),
        "(always a node's width of tensor parallelism)": (
            "def choose_layout(model, machine):\n"
            "    n = machine['per_node']\n"
            "    return machine['devices'] // n, n, 1\n"
        ),
        "(as little cut as fits)": layout(choice="max(pair[1] for pair in found)"),
        "other-order": layout(choice="[min(found)[1][k] for k in (1, 0, 2)]"),
        "least-memory": layout(choice="min(found)[2]").replace("append((", "append((need, "),
    },
}
REFUSED = {
    "dispatch": {
        "must be a list of arrays, got <generator": dispatch().replace(
            "return outputs", "return (own for own in outputs)"
        ),
        "must be a list of (rank, token, expert), got 33": dispatch().replace(
            "outputs, dropped, sent\n", "outputs, 33, sent\n"
        ),
    },
}
