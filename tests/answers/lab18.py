# ruff: noqa: E501
"""Lab 18: answers that must pass, in several styles, and answers that must be refused by name."""


def work(
    take="fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)",
    again="if os.path.exists(final): continue",
    save="part = f'{final}.{os.getpid()}.npy'; np.save(part, values); os.rename(part, final)",
    order="left",
    loop="while left := [s for s in shards if not os.path.exists(os.path.join(output, os.path.basename(s)))]",
    size="16",
):
    return f"""
import fcntl, os, random, tempfile, time
import numpy as np
def work(shards, output, predict):
    {loop}:
        for shard in {order}:
            final = os.path.join(output, os.path.basename(shard))
            with open(final + ".lock", "a") as lock:
                try:
                    {take}
                except OSError:
                    continue
                {again}
                rows = np.load(shard)
                values = np.concatenate([predict(rows[k : k + {size}]) for k in range(0, len(rows), {size})])
                {save}
        time.sleep(0.01)
"""


WHOLE_FOLDER = """
import fcntl, os, pathlib
import numpy as np
def work(shards, output, predict):
    folder = os.open(output, os.O_RDONLY)
    for shard in map(pathlib.Path, shards):
        fcntl.flock(folder, fcntl.LOCK_EX)
        if not pathlib.Path(output, shard.name).exists():
            rows = np.load(shard, mmap_mode="r")
            parts = np.array_split(rows, -(-len(rows) // 16))
            aside = pathlib.Path(output, "aside")
            with aside.open("wb") as file:
                np.save(file, np.concatenate([predict(part) for part in parts]))
            aside.replace(pathlib.Path(output, shard.name))
        fcntl.flock(folder, fcntl.LOCK_UN)
    os.close(folder)
"""
SOCKETS = """
import os, socket, time
import numpy as np
def work(shards, output, predict):
    def is_done(shard):
        return os.path.isfile(f"{output}/{os.path.basename(shard)}")
    while not all(map(is_done, shards)):
        for shard in shards:
            claim = socket.socket(socket.AF_UNIX)
            try:
                claim.bind("\\0" + shard)
                if not is_done(shard):
                    rows = np.load(shard)
                    found = np.empty(len(rows))
                    for k in range(0, len(rows), 8):
                        found[k : k + 8] = predict(rows[k : k + 8])
                    np.save(f"{output}/tmp-{os.getpid()}.npy", found)
                    os.replace(f"{output}/tmp-{os.getpid()}.npy", f"{output}/{os.path.basename(shard)}")
            except OSError:
                pass
            finally:
                claim.close()
        time.sleep(0.01)
"""
OWNERS = """
import os, time
import numpy as np
def lives(process):
    try:
        os.kill(process, 0)
        return True
    except ProcessLookupError:
        return False
def work(shards, output, predict):
    me, left = os.getpid(), list(shards)
    while left:
        for shard in list(left):
            final = os.path.join(output, os.path.basename(shard))
            if os.path.exists(final):
                left.remove(shard)
                continue
            os.makedirs(f"{output}/{me}", exist_ok=True)
            with open(f"{output}/{me}/owner", "w") as file:
                file.write(str(me))
            try:
                os.link(f"{output}/{me}/owner", final + ".owner")
            except FileExistsError:
                if not lives(int(open(final + ".owner").read())):
                    os.unlink(final + ".owner")
                continue
            finally:
                os.unlink(f"{output}/{me}/owner")
            rows = np.load(shard)
            answers = []
            for row in range(0, len(rows), 10):
                answers.extend(predict(rows[row : row + 10]))
            np.save(f"{output}/{me}/done.npy", answers)
            os.rename(f"{output}/{me}/done.npy", final)
        time.sleep(0.01)
"""
LEASES = """
import os, pathlib, time
import numpy as np
def work(shards, output, predict):
    output = pathlib.Path(output)
    while True:
        left = [pathlib.Path(s) for s in shards if not (output / pathlib.Path(s).name).exists()]
        if not left:
            return
        for shard in left:
            claim = output / (shard.name + ".claim")
            try:
                claim.open("x").close()
            except FileExistsError:
                if claim.exists() and time.time() - claim.stat().st_mtime > 2:
                    claim.unlink()
                continue
            if (output / shard.name).exists():
                continue
            rows, found = np.load(shard), []
            while len(found) < len(rows):
                found += list(predict(rows[len(found) : len(found) + 16]))
                claim.touch()
            with (output / (shard.name + ".new")).open("wb") as file:
                np.save(file, np.array(found))
            (output / (shard.name + ".new")).rename(output / shard.name)
        time.sleep(0.02)
"""
EXCLUSIVE = """
import os, time
import numpy as np
def work(shards, output, predict):
    for shard in shards:
        final = os.path.join(output, os.path.basename(shard))
        try:
            open(final + ".mine", "x").close()
        except FileExistsError:
            continue
        rows = np.load(shard)
        values = np.concatenate([predict(rows[k : k + 16]) for k in range(0, len(rows), 16)])
        np.save(final + ".part.npy", values)
        os.rename(final + ".part.npy", final)
"""
WAITS = (
    EXCLUSIVE
    + """
    while not all(os.path.exists(os.path.join(output, os.path.basename(s))) for s in shards):
        time.sleep(0.05)
"""
)
NO_CLAIM = work(take="pass")


def halve(
    key="(math.isnan(losses[t][epochs - 1]), losses[t][epochs - 1], t)",
    kept="max(1, len(left) // 2)",
    among="left",
):
    return f"""
import math
def halve(losses, first):
    left, epochs, ran = list(range(len(losses))), first, [first] * len(losses)
    while epochs < len(losses[0]):
        left = sorted(left, key=lambda t: {key})[:{kept}]
        epochs *= 2
        for t in left:
            ran[t] = epochs
    return ran, min({among}, key=lambda t: {key})
"""


ARGSORT = """
import numpy as np
def halve(losses, first):
    table = np.nan_to_num(np.array(losses), nan=np.inf)
    epochs, left = np.full(len(table), first), np.arange(len(table))
    while first < table.shape[1]:
        order = np.argsort(table[left, first - 1], kind="stable")
        left = np.sort(left[order[: max(1, len(left) // 2)]])
        first = 2 * first
        epochs[left] = first
    return epochs, left[np.argmin(table[left, -1])]
"""
RECURSIVE = """
def halve(losses, first):
    def go(left, epochs):
        order = sorted(left, key=lambda t: (losses[t][epochs - 1] != losses[t][epochs - 1], losses[t][epochs - 1]))
        if epochs == len(losses[0]):
            return {t: epochs for t in left}, order[0]
        on = sorted(order[: max(1, len(order) // 2)])
        later, best = go(on, 2 * epochs)
        return {**{t: epochs for t in left}, **later}, best
    ran, best = go(range(len(losses)), first)
    return [ran[t] for t in range(len(losses))], best
"""
HEAP = """
import heapq, math
def halve(losses, first):
    clean = [[math.inf if math.isnan(x) else x for x in row] for row in losses]
    groups, left, epochs = [], range(len(losses)), first
    while True:
        groups.append((epochs, left))
        pairs = [(clean[t][epochs - 1], t) for t in left]
        if epochs == len(losses[0]):
            break
        left = [t for _, t in heapq.nsmallest(max(1, len(pairs) // 2), pairs)]
        epochs *= 2
    ran = [max(e for e, members in groups if t in members) for t in range(len(losses))]
    return tuple(ran), min(pairs)[1]
"""
LEXSORT = """
import numpy as np
def halve(losses, first):
    table = np.asarray(losses, float)
    alive, ran, epochs = np.ones(len(table), bool), np.zeros(len(table), int), first
    while True:
        ran[alive] = epochs
        column = np.where(np.isnan(table[:, epochs - 1]), np.inf, table[:, epochs - 1])
        order = [t for t in np.lexsort((np.arange(len(table)), column)) if alive[t]]
        if epochs == table.shape[1]:
            return ran.tolist(), int(order[0])
        alive[:] = False
        alive[order[: max(1, len(order) // 2)]] = True
        epochs += epochs
"""
ELIMINATE = """
def halve(losses, first):
    def worse(a, b, k):
        x, y = losses[a][k], losses[b][k]
        if x != x or y != y:
            return (x != x, a) > (y != y, b)
        return (x, a) > (y, b)
    left, ran, epochs = set(range(len(losses))), {}, first
    while epochs < len(losses[0]):
        for _ in range(len(left) - max(1, len(left) // 2)):
            loser = next(a for a in left if not any(worse(b, a, epochs - 1) for b in left - {a}))
            left.discard(loser)
            ran[loser] = epochs
        epochs *= 2
    while len(left) > 1:
        loser = next(a for a in left if not any(worse(b, a, epochs - 1) for b in left - {a}))
        left.discard(loser)
        ran[loser] = epochs
    (best,) = left
    ran[best] = epochs
    return [ran[t] for t in sorted(ran)], best
"""
RANKS = """
import numpy as np
def halve(losses, first):
    table = np.array([[1e9 if x != x else x for x in row] for row in losses])
    ran = np.full(len(table), first)
    while ran.max() < table.shape[1]:
        epochs = ran.max()
        running = np.flatnonzero(ran == epochs)
        values = table[running, epochs - 1]
        ranks = [(values < v).sum() + (values[:i] == v).sum() for i, v in enumerate(values)]
        ran[running[np.array(ranks) < max(1, len(running) // 2)]] = 2 * epochs
    final = np.where(ran == table.shape[1], table[:, -1], np.inf)
    return list(map(int, ran)), int(final.argmin())
"""
GENERATOR = """
from math import inf
def rungs(first, last):
    while first <= last:
        yield first
        first *= 2
def halve(losses, first):
    runs, left = {}, list(range(len(losses)))
    for epochs in rungs(first, len(losses[0])):
        runs.update(dict.fromkeys(left, epochs))
        scored = sorted((inf if losses[t][epochs - 1] != losses[t][epochs - 1] else losses[t][epochs - 1], t) for t in left)
        best = scored[0][1]
        left = [t for _, t in scored][: len(scored) // 2 or 1]
    return [runs[t] for t in range(len(losses))], best
"""


def merge(
    damaged="not os.path.exists(path) or hashlib.sha256(open(path, 'rb').read()).hexdigest() != part['sha256']",
    lost="values[first : first + part['rows']] = np.nan",
    found="values[first : first + part['rows']] = np.load(path)",
    name="names.append(part['file'])",
    result="values, names",
):
    return f"""
import hashlib, json, os
import numpy as np
def merge(folder):
    manifest = json.load(open(os.path.join(folder, "manifest.json")))
    values, names = np.zeros(manifest["rows"]), []
    for part in manifest["parts"]:
        path, first = os.path.join(folder, part["file"]), part["first_row"]
        if {damaged}:
            {lost}
            {name}
            continue
        {found}
    return {result}
"""


CONCATENATED = """
import hashlib, json, pathlib
import numpy as np
def merge(folder):
    folder = pathlib.Path(folder)
    parts = json.loads((folder / "manifest.json").read_bytes())["parts"]
    pieces, bad = [], set()
    for part in sorted(parts, key=lambda part: part["first_row"]):
        try:
            with (folder / part["file"]).open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != part["sha256"]:
                    raise ValueError("other bytes")
                file.seek(0)
                pieces.append(np.load(file))
        except (OSError, ValueError):
            bad.add(part["file"])
            pieces.append(np.full(part["rows"], np.nan))
    return np.concatenate(pieces), sorted(bad)
"""
ROW_BY_ROW = """
import hashlib, io, json, math
def merge(folder):
    import numpy as np
    manifest = json.load(open(f"{folder}/manifest.json"))
    rows, bad = {}, []
    for part in manifest["parts"]:
        try:
            data = open(f"{folder}/{part['file']}", "rb").read()
        except FileNotFoundError:
            data = b""
        if hashlib.sha256(data).hexdigest() == part["sha256"]:
            for k, value in enumerate(np.load(io.BytesIO(data)).tolist()):
                rows[part["first_row"] + k] = value
        else:
            bad.append(part["file"])
    return [rows.get(k, math.nan) for k in range(manifest["rows"])], bad
"""
TWO_PASSES = """
import hashlib, json, pathlib
import numpy as np
def digest(path):
    total = hashlib.sha256()
    if path.is_file():
        with path.open("rb") as file:
            while block := file.read(64):
                total.update(block)
    return total.hexdigest()
def merge(folder):
    folder = pathlib.Path(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    bad = [p["file"] for p in manifest["parts"] if digest(folder / p["file"]) != p["sha256"]]
    good = [p for p in manifest["parts"] if p["file"] not in bad]
    out = np.nan * np.ones(manifest["rows"])
    for p in good:
        out[p["first_row"] :][: p["rows"]] = np.load(folder / p["file"])
    return out, tuple(bad)
"""
MASKED = """
import hashlib, json, os
import numpy as np
def merge(folder):
    with open(folder + "/manifest.json") as file:
        told = json.load(file)
    there = set(os.listdir(folder))
    values, known, bad = np.zeros(told["rows"]), np.zeros(told["rows"], bool), []
    for part in told["parts"]:
        name, rows = part["file"], np.arange(part["first_row"], part["first_row"] + part["rows"])
        with open(f"{folder}/{name}", "rb") if name in there else open(os.devnull, "rb") as file:
            whole = hashlib.sha256(file.read()).hexdigest() == part["sha256"]
        if whole:
            values[rows], known[rows] = np.load(f"{folder}/{name}"), True
        else:
            bad += [name]
    return np.where(known, values, np.nan), bad
"""
FROM_BUFFER = merge(
    found="values[first : first + part['rows']] = np.frombuffer(open(path, 'rb').read()[128:])"
)
LISTS = merge(result="values.tolist(), names[::-1]")
MMAPPED = merge(
    found="np.copyto(values[first : first + part['rows']], np.load(path, mmap_mode='r'))"
)
OWN_CLASS = """
import hashlib, json
from pathlib import Path
import numpy as np
class Part:
    def __init__(self, folder, file, first_row, rows, sha256):
        self.file, self.place, self.wanted = file, slice(first_row, first_row + rows), sha256
        self.path = Path(folder, file)
    @property
    def intact(self):
        return self.path.exists() and hashlib.new("sha256", self.path.read_bytes()).hexdigest() == self.wanted
def merge(folder):
    manifest = json.loads(Path(folder, "manifest.json").read_text())
    parts = [Part(folder, **part) for part in manifest["parts"]]
    values = np.full(manifest["rows"], float("nan"))
    for part in parts:
        if part.intact:
            values[part.place] = np.load(part.path)
    return values, [part.file for part in parts if not part.intact]
"""
ROWS_ONLY = """
import json, os
import numpy as np
def merge(folder):
    manifest = json.load(open(os.path.join(folder, "manifest.json")))
    values, names = np.full(manifest["rows"], np.nan), []
    for part in manifest["parts"]:
        try:
            found = np.load(os.path.join(folder, part["file"]))
        except (OSError, ValueError):
            found = []
        if len(found) == part["rows"]:
            values[part["first_row"] : part["first_row"] + part["rows"]] = found
        else:
            names.append(part["file"])
    return values, names
"""

RIGHT = {
    "work": [
        work(),
        work(take="fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)", size="5"),
        work(order="random.sample(left, len(left))"),
        work(
            save="""with tempfile.NamedTemporaryFile(dir=output, delete=False) as aside:
                    np.save(aside, values)
                os.replace(aside.name, final)"""
        ),
        work(size="3"),
        WHOLE_FOLDER,
        SOCKETS,
        OWNERS,
        LEASES,
    ],
    "halve": [halve(), ARGSORT, RECURSIVE, HEAP, LEXSORT, ELIMINATE, RANKS, GENERATOR],
    "merge": [
        merge(),
        CONCATENATED,
        ROW_BY_ROW,
        TWO_PASSES,
        MASKED,
        FROM_BUFFER,
        LISTS,
        MMAPPED,
        OWN_CLASS,
    ],
}
LOSS = "losses[t][epochs - 1]"
WRONG = {
    "work": {
        "no-claim": NO_CLAIM,
        "claim-outlives-its-worker": EXCLUSIVE,
        "waits-for-the-dead": WAITS,
        "half-file": work(save="np.save(final, values)"),
        "looked-once": work(loop="left = list(shards)\n    if left"),
    },
    "halve": {
        "epochs-added": halve().replace("ran[t] = epochs", "ran[t] += epochs"),
        "end-of-the-table": halve(key="(math.isnan(losses[t][-1]), losses[t][-1], t)"),
        "mean-so-far": halve(
            key="(math.isnan(sum(losses[t][:epochs])), sum(losses[t][:epochs]) / epochs, t)"
        ),
        "keeps-the-worst": halve(key=f"(-math.inf if math.isnan({LOSS}) else -{LOSS}, t)"),
        "keeps-the-highest": halve(
            key=f"(math.isnan({LOSS}), {LOSS} * (-1) ** (epochs < len(losses[0])), t)"
        ),
        "nan-is-best": halve(key=f"(not math.isnan({LOSS}), {LOSS}, t)"),
        "sorts-nan": halve(key=f"({LOSS}, t)"),
        "one-epoch-late": halve(
            key="(math.isnan(losses[t][min(epochs, len(losses[0]) - 1)]), losses[t][min(epochs, len(losses[0]) - 1)], t)"
        ),
        "ties-last": halve(key=f"(math.isnan({LOSS}), {LOSS}, -t)"),
        "own-last": halve().rpartition("left, key")[0]
        + "range(len(ran)), key=lambda t: (math.isnan(losses[t][ran[t] - 1]), losses[t][ran[t] - 1], t))\n",
        "rounded-up": halve(kept="-(-len(left) // 2)"),
        "best-so-far": halve(
            key="(min((x for x in losses[t][:epochs] if x == x), default=math.inf), t)"
        ),
        "stopped-ones-too": halve(among="range(len(losses))"),
        "best-ever": halve(among="range(len(losses))").rpartition("key=")[0]
        + "key=lambda t: min((x for x in losses[t][: ran[t]] if x == x), default=math.inf))\n",
    },
    "merge": {
        "values-digested": ROWS_ONLY.replace("import json", "import hashlib, json").replace(
            'if len(found) == part["rows"]:',
            'if hashlib.sha256(np.asarray(found).tobytes()).hexdigest() == part["sha256"]:',
        ),
        "rows-only": ROWS_ONLY,
        "shifted": merge(lost="values = np.delete(values, 0)")
        .replace(
            'for part in manifest["parts"]',
            'values = np.zeros(0)\n    for part in sorted(manifest["parts"], key=lambda p: p["first_row"])',
        )
        .replace("values = np.delete(values, 0)", "pass")
        .replace(
            "values[first : first + part['rows']] = np.load(path)",
            "values = np.append(values, np.load(path))",
        ),
        "by-name": CONCATENATED.replace('part["first_row"])', 'part["file"])'),
        "zeros": merge(lost="values[first : first + part['rows']] = 0"),
        "gone-ones-not-named": merge(name="names += [part['file']] * os.path.exists(path)"),
        "as-listed": CONCATENATED.replace(
            'sorted(parts, key=lambda part: part["first_row"])', "parts"
        ),
        "(paths)": merge(result="values, [os.path.join(folder, name) for name in names]"),
    },
}

REFUSED = {
    "merge": {
        "A part whose file is missing is damaged": merge(damaged="part['rows'] == 0"),
        "must be a list of names, got <map": merge(result="values, map(str, names)"),
        "must be a list of names, got 'part-": merge(result="values, ', '.join(names)"),
    },
}
