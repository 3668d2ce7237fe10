# ruff: noqa: E501
"""Lab 17: answers that must pass, in several styles, and answers that must be refused by name."""

NP = "import itertools, re\nimport numpy as np\n"


def read(
    key="path if path in layouts else next((k for k in layouts if re.fullmatch(k, path)), None)",
    part="n // mesh[axis] if axis else n",
    stray="[k for k in layouts if k not in used]",
    skip="pass",
):
    return f"""{NP}
def read_layouts(layouts, shapes, mesh):
    parts, used = {{}}, set()
    for path, shape in shapes.items():
        key = {key}
        used.add(key)
        axes = layouts[key] if key else (None,) * len(shape)
        if len(axes) != len(shape):
            axes = (None,) * len(shape)
        if key is None:
            {skip}
        parts[path] = tuple({part} for n, axis in zip(shape, axes))
    return parts, {stray}
"""


def cut(
    up='(None, "model")',
    up_bias='("model",)',
    down='("model", None)',
    query='(None, "model", None)',
    output='("model", None, None)',
    embedding='("model", None)',
    logits='(None, "model")',
    heads="shapes['attention/query/kernel'][1] % m == 0",
    tight="held > memory",
    extra="{}",
):
    return f"""{NP}
def cut_model(shapes, mesh, memory):
    m = mesh["model"]
    block = {{"up/kernel": {up}, "up/bias": {up_bias}, "down/kernel": {down}}}
    if {heads}:
        for name in ("query", "key", "value"):
            block["attention/" + name + "/kernel"] = {query}
        block["attention/attention_output/kernel"] = {output}
    held = 8 * sum(np.prod(s) / (m if p in block else 1) for p, s in shapes.items())
    words = {{"embedding/embeddings": {embedding}, "logits/kernel": {logits}}}
    words = {{path: axes for path, axes in words.items() if axes}}
    return {{**block, **(words if {tight} else {{}}), **{extra}}}
"""


def gather(
    dividing="[k for k, n in enumerate(shape) if n % devices == 0 and not (k and 'embed' in path)]",
    matrix="len(shape) > 1 and dividing",
    axis="dividing[0]",
    bytes_each="8",
    choice="min((c for c in choices if fits(c)), key=saved)",
    cost="4 * size[p] * (devices - 1) // devices",
    layouts="{p: axes[p] for p in best}",
    costs="{p: cost[p] for p in best}",
):
    return f"""{NP}
def place_gathers(shapes, devices, memory):
    axes, size = {{}}, {{p: int(np.prod(s)) for p, s in shapes.items()}}
    for path, shape in shapes.items():
        dividing = {dividing}
        if {matrix}:
            axes[path] = tuple("batch" if k == {axis} else None for k in range(len(shape)))
    whole = {bytes_each} * sum(size.values())
    saved = lambda some: sum(size[p] for p in some) * (devices - 1) / devices
    fits = lambda some: whole - {bytes_each} * saved(some) <= memory + 1e-6
    choices = [c for n in range(len(axes) + 1) for c in itertools.combinations(axes, n)]
    first = lambda order: next(order[:n] for n in range(len(order) + 1) if fits(order[:n]))
    best = {choice}
    cost = {{p: {cost} for p in axes}}
    return {layouts}, {costs}
"""


RIGHT = {
    "read": [
        read(),
        read(stray="set(layouts) - used"),
        read(part="int(n / mesh.get(axis, 1))"),
        read(part="np.int64(n) // (mesh[axis] if axis is not None else 1)"),
        read(
            key="([k for k in layouts if k == path] + [k for k in layouts if re.match('(?:' + k + ')$', path)] + [None])[0]"
        ),
        read(stray="sorted(set(layouts).difference(used), reverse=True)"),
        # key by key, then path by path
        f"""{NP}
def read_layouts(layouts, shapes, mesh):
    owner = {{path: path for path in shapes if path in layouts}}
    for key in layouts:
        for path in shapes:
            if path not in owner and re.fullmatch(key, path):
                owner[path] = key
    parts = {{path: list(shape) for path, shape in shapes.items()}}
    for path, key in owner.items():
        for k, axis in enumerate(layouts[key]):
            if axis is not None:
                parts[path][k] //= mesh[axis]
    return parts, [key for key in layouts if key not in owner.values()]
""",
        # a class with compiled patterns and arrays
        f"""{NP}
class Map:
    def __init__(self, layouts):
        self.layouts, self.used = layouts, set()
        self.patterns = [(re.compile(key), key) for key in layouts]
    def __getitem__(self, path):
        found = [path] if path in self.layouts else [k for p, k in self.patterns if p.fullmatch(path)]
        self.used.update(found[:1])
        return self.layouts[found[0]] if found else None
def read_layouts(layouts, shapes, mesh):
    layout_map = Map(layouts)
    divide = lambda shape, axes: np.array(shape) // [mesh.get(a, 1) for a in axes or [None] * len(shape)]
    return [{{p: divide(s, layout_map[p]) for p, s in shapes.items()}}, [k for k in layouts if k not in layout_map.used]]
""",
    ],
    "cut": [
        cut(),
        cut(up_bias="(None,)"),
        cut(up_bias="['model']", up="[None, 'model']"),
        cut(
            heads="all(shapes[f'attention/{n}/kernel'][1] % m == 0 for n in ('query', 'key', 'value'))"
        ),
        cut(heads="not shapes['attention/key/kernel'][1] % m"),
        cut(extra="{'norm./(gamma|beta)': (None,)}"),
        # patterns for keys, and what fits counted the other way round
        f"""{NP}
def cut_model(shapes, mesh, memory):
    m, saved = mesh["model"], 0
    ways = {{"up/kernel": (None, "model"), "up/bias": ("model",), "down/kernel": ("model", None)}}
    if not shapes["attention/key/kernel"][1] % m:
        ways |= {{".*(query|key|value)/kernel": (None, "model", None), ".*output/kernel": ("model", None, None)}}
    for path, shape in shapes.items():
        if any(re.fullmatch(key, path) for key in ways):
            saved += 8 * np.prod(shape) * (m - 1) / m
    if 8 * sum(np.prod(s) for s in shapes.values()) - saved > memory:
        ways |= {{".*embeddings": ("model", None), "logits/kernel": (None, "model")}}
    return ways
""",
        # tried in turn, from the smallest cut to the largest
        f"""{NP}
def cut_model(shapes, mesh, memory):
    m = mesh["model"]
    mlp = [("up/kernel", 1), ("up/bias", 0), ("down/kernel", 0)]
    heads = [("attention/" + n + "/kernel", 1) for n in ("query", "key", "value")]
    heads += [("attention/attention_output/kernel", 0)]
    if shapes[heads[0][0]][1] % m:
        heads = []
    for chosen in (mlp + heads, mlp + heads + [("embedding/embeddings", 0), ("logits/kernel", 1)]):
        parts = {{path: list(shape) for path, shape in shapes.items()}}
        for path, axis in chosen:
            parts[path][axis] /= m
        if sum(np.prod(part) for part in parts.values()) * 8 <= memory:
            break
    return {{p: tuple("model" if k == axis else None for k in range(len(shapes[p]))) for p, axis in chosen}}
""",
    ],
    "gather": [
        gather(),
        gather(axis="dividing[-1]"),
        gather(choice="sorted((c for c in choices if fits(c)), key=saved)[0]"),
        gather(cost="size[p] * 4 / devices * (devices - 1)"),
        gather(costs="{p: np.float64(cost[p]) for p in best}"),
        gather(layouts="{p: list(axes[p]) for p in best}"),
        gather(layouts="{**{p: axes[p] for p in best}, 'norm1/gamma': (None,)}"),
        # dynamic programming over the sums that are reached
        f"""{NP}
def place_gathers(shapes, devices, memory):
    part = {{p: int(np.prod(s)) // devices for p, s in shapes.items()
            if len(s) > 1 and any(n % devices == 0 for n in (s[:1] if "embed" in p else s))}}
    need = 8 * sum(int(np.prod(s)) for s in shapes.values()) - memory
    reached = {{0: ()}}
    for path, size in part.items():
        reached = {{**{{s + size: c + (path,) for s, c in reached.items()}}, **reached}}
    best = reached[min(s for s in reached if 8 * s * (devices - 1) >= need)]
    layouts = {{}}
    for path in best:
        k = next(k for k, n in enumerate(shapes[path]) if n % devices == 0)
        layouts[path] = tuple("batch" if j == k else None for j in range(len(shapes[path])))
    return layouts, {{p: 4 * part[p] * (devices - 1) for p in best}}
""",
    ],
}

WRONG = {
    "read": {
        "(the unused keys by heart)": read(
            stray="['up/bi', 'kernel', 'norm./bias', 'attention/.*_output/.*']"
        ),
        "search": read(
            key="path if path in layouts else next((k for k in layouts if re.search(k, path)), None)"
        ),
        "search (as many axes as both have)": read(
            key="path if path in layouts else next((k for k in layouts if re.search(k, path)), None)"
        ).replace("len(axes) != len(shape)", "key is None"),
        "prefix": read(
            key="path if path in layouts else next((k for k in layouts if re.match(k, path)), None)"
        ),
        "names-only": read(key="path if path in layouts else None"),
        "pattern-wins": read(
            key="next((k for k in layouts if k != path and re.fullmatch(k, path)), path if path in layouts else None)"
        ),
        "match-is-use": read(
            stray="[k for k in layouts if not any(re.fullmatch(k, p) for p in shapes)]"
        ),
        "whole-mesh": read(part="n // np.prod(list(mesh.values())) if axis else n"),
        "counted": read(part="n * mesh[axis] if axis else n"),
        "left-out": read(skip="continue"),
        "used-ones": read(stray="[k for k in layouts if k in used]"),
        "whole-shapes": read(part="n"),
    },
    "cut": {
        "not-divisible": cut(heads="True"),
        "stray": cut(extra="{'norm1/bias': (None,)}"),
        "norm": cut(extra="{'norm./(gamma|beta)': ('model',)}"),
        "too-large": cut(tight="False"),
        "over-batch": cut(
            up='("batch", "model")', down='("model", "batch")', logits='("batch", "model")'
        ),
        "vocabulary": cut(tight="True"),
        "embedding": cut(embedding='(None, "model")'),
        "logits": cut(logits='("model", None)'),
        "outputs": cut().replace('"logits/kernel"', '"logits/.*"'),
        "rows-first": cut(up='("model", None)', up_bias="(None,)", down='(None, "model")'),
        "columns-again": cut(down='(None, "model")'),
        "down-bias": cut(extra="{'down/bias': ('model',)}"),
        "heads": cut(query='("model", None, None)', output='(None, None, "model")', heads="True"),
    },
    "gather": {
        "not-divisible": gather(matrix="len(shape) > 1", axis="0"),
        "stray": gather(layouts="{**{p: axes[p] for p in best}, 'norm1/bias': (None,)}"),
        "norm": gather(
            layouts="{**{p: axes[p] for p in best}, 'norm1/gamma': ('batch',)}",
            costs="{**{p: cost[p] for p in best}, 'norm1/gamma': 4 * size['norm1/gamma'] * (devices - 1) / devices}",
        ),
        "norm (a bias)": gather(layouts="{**{p: axes[p] for p in best}, 'down/bias': ('batch',)}"),
        "too-large": gather(bytes_each="4"),
        "embedding": gather(
            dividing="[k for k, n in enumerate(shape) if n % devices == 0 and not (k == 0 and 'embed' in path)]",
            choice="tuple(axes)",
        ),
        "everything": gather(choice="tuple(axes)"),
        "largest-first": gather(choice="first(sorted(axes, key=lambda p: -size[p]))"),
        "smallest-first": gather(choice="first(sorted(axes, key=lambda p: size[p]))"),
        "others": gather(costs="cost"),
        "swapped": gather(costs="dict(zip(best, [cost[p] for p in best[1:] + best[:1]]))"),
        "payload": gather(cost="4 * size[p]"),
        "own-part": gather(cost="4 * size[p] // devices"),
        "all-reduce": gather(cost="8 * size[p] * (devices - 1) // devices"),
    },
}
REFUSED = {
    "read": {
        "must be a tuple of sizes, got <generator": read().replace("= tuple(", "= ("),
        "must be a list, got <filter": read(stray="filter(lambda k: k not in used, layouts)"),
    },
    "cut": {
        "needs the rows that belong to them": cut(
            embedding='(None, "model")', down='(None, "model")'
        )
    },  # and another in the next case
}
