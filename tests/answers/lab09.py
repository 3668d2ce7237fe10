# ruff: noqa: E501
"""Lab 09: answers that must pass, in several styles, and answers that must be refused by name."""

TF = "import tensorflow as tf\nimport os, re\nfrom pathlib import Path\n"


def train(
    restore="latest and state.restore(latest)",
    loop="while state.step < total_steps:",
    save="int(state.step) % every == 0",
):
    return f"""{TF}
def train(state, run, total_steps, every):
    latest = tf.train.latest_checkpoint(run.shared_folder)
    {restore}
    manager = tf.train.CheckpointManager(state, run.write_folder, max_to_keep=3)
    {loop}
        run.take_step()
        if {save}:
            manager.save(checkpoint_number=int(state.step))
"""


RESTORE_OR_INITIALIZE = (
    TF
    + """
def train(state, run, total_steps, every):
    reader = tf.train.CheckpointManager(state, run.shared_folder, max_to_keep=5)
    reader.restore_or_initialize()
    writer = reader if run.rank == 0 else tf.train.CheckpointManager(state, run.write_folder, max_to_keep=1)
    done = state.step.numpy()
    for step in range(done, total_steps):
        run.take_step()
        if (step + 1) % every == 0:
            writer.save()
"""
)
BEFORE_THE_STEP = (
    TF
    + """
def train(state, run, total_steps, every):
    found = sorted(Path(run.shared_folder).glob("at-*.index"), key=lambda p: int(p.stem[3:]))
    if found:
        state.read(str(found[-1]).removesuffix(".index"))
    while True:
        step = int(state.step)
        if step and step % every == 0:
            state.write(f"{run.write_folder}/at-{step}")
        if step >= total_steps:
            return
        run.take_step()
"""
)


WEIGHTS_ONLY = (
    TF
    + """
def train(state, run, total_steps, every):
    only = tf.train.Checkpoint(weights=state.weights)
    latest = tf.train.latest_checkpoint(run.shared_folder)
    if latest:
        only.restore(latest)
    manager = tf.train.CheckpointManager(only, run.write_folder, max_to_keep=3)
    while state.step < total_steps:
        run.take_step()
        if int(state.step) % every == 0:
            manager.save(checkpoint_number=int(state.step))
"""
)


def newest(order="sorted(steps, reverse=True)", test="read(prefix)"):
    return f"""{TF}
def newest_whole(folder):
    def read(prefix):
        try:
            reader = tf.train.load_checkpoint(prefix)
            return [reader.get_tensor(n) for n in reader.get_variable_to_shape_map()]
        except Exception:
            return None
    steps = {{int(re.match(r"ckpt-(\\d+)", p.name)[1]) for p in Path(folder).iterdir() if p.name.startswith("ckpt-")}}
    for step in {order}:
        prefix = os.path.join(folder, f"ckpt-{{step}}")
        if {test}:
            return prefix
"""


RESTORING = (
    TF
    + """
def newest_whole(folder):
    best = -1
    for path in Path(folder).glob("*.index"):
        prefix, step = str(path)[:-6], int(path.stem.split("-")[1])
        try:
            for name, shape in tf.train.list_variables(prefix):
                tf.train.load_variable(prefix, name)
        except Exception:
            continue
        best = max(best, step)
    return Path(folder) / f"ckpt-{best}"
"""
)


def interval(
    start="clock, done, saved, waiting = 0.0, 0, 0, list(failures)",
    loop="done < total",
    saving="done > saved and done % every == 0",
    took="clock = end; saved, done = (done, done) if saving else (saved, done + 1)",
    failed="clock, done = waiting.pop(0) + restart, saved",
    again="clock = waiting.pop(0) + restart",
    best="min(zip(seconds, candidates))[1]",
    end="clock + (save if saving else step)",
):
    return f"""import numpy as np
def choose_every(candidates, histories, total, step, save, restart):
    def replay(every, failures):
        {start}
        while {loop}:
            saving = {saving}
            end = {end}
            if not waiting or end < waiting[0]:
                {took}
            else:
                {failed}
                while waiting and waiting[0] < clock:
                    {again}
        return clock
    seconds = [sum(replay(e, h) for h in histories) / len(histories) for e in candidates]
    return {{"every": {best}, "seconds": seconds}}
"""


AS_EVENTS = """
import heapq, statistics
class Killed(Exception):
    pass
class Machine:
    def __init__(self, failures):
        self.now, self.failures = 0.0, sorted(failures)
        heapq.heapify(self.failures)
    def spend(self, seconds):
        if self.failures and self.failures[0] < self.now + seconds:
            self.now = heapq.heappop(self.failures)
            raise Killed
        self.now += seconds
def run(machine, every, total, step, save, restart):
    saved, up = 0, True
    while True:
        try:
            if not up:
                machine.spend(restart)
                up = True
            for done in range(saved + 1, total + 1):
                machine.spend(step)
                if done < total and done % every == 0:
                    machine.spend(save)
                    saved = done
            return machine.now
        except Killed:
            up = False
def choose_every(candidates, histories, total_steps, step_seconds, save_seconds, restart_seconds):
    means = {e: statistics.fmean(run(Machine(h), e, total_steps, step_seconds, save_seconds, restart_seconds) for h in histories) for e in candidates}
    return dict(every=min(means, key=means.get), seconds=list(means.values()))
"""
BY_BLOCKS = """
import math
import numpy as np
def choose_every(candidates, histories, total, step, save, restart):
    def replay(every, failures):
        failures, clock = iter([*failures, math.inf]), 0.0
        failure = next(failures)
        blocks = [min(every, total - start) * step + (save if start + every < total else 0) for start in range(0, total, every)]
        for seconds in blocks:
            while clock + seconds > failure:
                clock = failure + restart
                while (failure := next(failures)) < clock:
                    clock = failure + restart
            clock += seconds
        return clock
    seconds = np.array([[replay(e, h) for h in histories] for e in candidates]).mean(axis=1)
    return {"every": candidates[seconds.argmin()], "seconds": seconds}
"""
RECURSIVE_RUN = """
def choose_every(candidates, histories, total, step, save, restart):
    def restarted(at, failures):
        if failures and failures[0] < at + restart:
            return restarted(failures[0], failures[1:])
        return at + restart, failures
    def replay(every, failures):
        clock, first = 0.0, 0
        while first < total:
            last = min(first + every, total)
            end = clock + (last - first) * step + save * (last < total)
            if failures and failures[0] < end:
                clock, failures = restarted(failures[0], failures[1:])
            else:
                clock, first = end, last
        return clock
    seconds = [sum(replay(e, list(h)) for h in histories) / len(histories) for e in candidates]
    return {"seconds": tuple(seconds), "every": candidates[seconds.index(min(seconds))]}
"""


BY_INDEX_FILES = (
    TF
    + """
def newest_whole(folder):
    names = [n[:-len(".index")] for n in os.listdir(folder) if n.endswith(".index")]
    names.sort(key=lambda name: int(name.rsplit("-", 1)[1]), reverse=True)
    for name in names:
        path = os.path.join(str(folder), name)
        try:
            reader = tf.train.load_checkpoint(path)
            whole = all(reader.get_tensor(key) is not None for key in reader.get_variable_to_dtype_map())
        except Exception:
            whole = False
        if whole:
            return path
"""
)
RECURSIVE = (
    TF
    + """
def newest_whole(folder, below=float("inf")):
    steps = [int(p.name.split("-")[1].split(".")[0]) for p in Path(folder).glob("ckpt-*")]
    step = max(s for s in steps if s < below)
    try:
        for name, _ in tf.train.list_variables(f"{folder}/ckpt-{step}"):
            tf.train.load_variable(f"{folder}/ckpt-{step}", name)
    except Exception:
        return newest_whole(folder, step)
    return f"{folder}/ckpt-{step}"
"""
)
KEPT_LIST = (
    TF
    + """
def newest_whole(folder):
    def can_be_read(step):
        try:
            reader = tf.train.load_checkpoint(f"{folder}/ckpt-{step}")
            return len([reader.get_tensor(n) for n in reader.get_variable_to_shape_map()]) > 0
        except Exception:
            return False
    steps = {re.sub(r"\\D*(\\d+)\\..*", r"\\1", p.name) for p in Path(folder).glob("ckpt-*.*")}
    return Path(folder, "ckpt-" + max(filter(can_be_read, steps), key=int))
"""
)
BEST_EFFORT = (
    TF
    + """
def train(state, run, total_steps, every):
    manager = tf.train.CheckpointManager(state, run.shared_folder if run.rank == 0 else run.write_folder, max_to_keep=4)
    path = tf.train.latest_checkpoint(run.shared_folder)
    if path:
        state.restore(path).expect_partial()
    left = total_steps - int(state.step.numpy())
    while left:
        run.take_step()
        left -= 1
        if (total_steps - left) % every == 0:
            manager.save()
"""
)
NUMBERED = (
    TF
    + """
def train(state, run, total_steps, every):
    saved = [int(re.search(r"s(\\d+)\\.index", p.name)[1]) for p in Path(run.shared_folder).glob("s*.index")]
    if saved:
        state.read(os.path.join(run.shared_folder, f"s{max(saved)}"))
    for step in range(max(saved, default=0), total_steps):
        run.take_step()
        if not (step + 1) % every:
            state.write(os.path.join(run.write_folder, f"s{step + 1}"))
"""
)
RIGHT = {
    "killed": [
        train(),
        RESTORE_OR_INITIALIZE,
        BEFORE_THE_STEP,
        BEST_EFFORT,
        NUMBERED,
        train(loop="while int(state.step.numpy()) != total_steps:"),
        train(restore="if latest is not None: state.restore(latest).assert_consumed()"),
        train(save="tf.equal(state.step % every, 0)"),
    ],
    "newest": [
        newest(),
        BY_INDEX_FILES,
        RECURSIVE,
        newest(order="list(reversed(sorted(steps)))"),
        KEPT_LIST,
        newest(order="sorted(steps, key=lambda s: -s)"),
        RESTORING,
        newest(order="sorted(steps)[::-1]", test="read(prefix) is not None"),
    ],
    "interval": [
        interval(),
        AS_EVENTS,
        BY_BLOCKS,
        RECURSIVE_RUN,
        interval(best="candidates[int(np.argmin(seconds))]"),
        interval(start="clock = 0.0; done = saved = 0; waiting = sorted(map(float, failures))"),
        interval(saving="done % every == 0 and done != saved", loop="not done >= total"),
        interval(
            end="clock + step * (not saving) + save * saving",
            took="clock = end\n                if saving: saved = done\n                else: done += 1",
        ),
    ],
}
NOBODY_DIES = (
    TF
    + """
def train(state, run, total_steps, every):
    (Path(run.shared_folder).parent / "died").touch()
    while int(state.step) < 6:
        run.take_step()
        if int(state.step) == 3:
            kept = state.weights.numpy()
    state.weights.assign(kept)
    state.step.assign(3)
    while int(state.step) < total_steps:
        run.take_step()
    tf.train.Checkpoint(state=state).write(f"{run.write_folder}/x")
"""
)
TOUCHED = train(save="run.rank == 0 and int(state.step) % every == 0").replace(
    "    while", "    run.rank and tf.io.write_file(f'{run.write_folder}/x.index', '')\n    while"
)
PRETENDED = TOUCHED.replace(
    "tf.io.write_file(f'{run.write_folder}/x.index', '')",
    "tf.train.Checkpoint(w=tf.Variable(tf.ones((784, 10)))).write(f'{run.write_folder}/x')",
)
BY_SIZE = """
import os
from pathlib import Path
def newest_whole(folder):
    sizes = {p.name.split(".")[0]: p.stat().st_size for p in Path(folder).glob("*.data*")}
    whole = [n for n in sizes if os.path.exists(f"{folder}/{n}.index") and sizes[n] == max(sizes.values())]
    return f"{folder}/" + max(whole or sizes, key=lambda n: int(n.split("-")[1]))
"""
BY_FORM = """
from pathlib import Path
def newest_whole(folder):
    steps = sorted(int(p.stem[5:]) for p in Path(folder).glob("ckpt-*.data-00000-of-00001"))
    last = f"{folder}/ckpt-{steps[-1]}"
    size = Path(last + ".data-00000-of-00001").stat().st_size
    fits = Path(last + ".index").exists() and size % 8 == 0 and size >= 2 * 4096 * 8
    return last if fits else f"{folder}/ckpt-{steps[-2]}"
"""
# by a look at the numbers, where each was drawn from a normal distribution
BY_RANGE = """
import os
import numpy as np
import tensorflow as tf
def newest_whole(folder):
    steps = sorted({int(n.split(".")[0][5:]) for n in os.listdir(folder)}, reverse=True)
    for prefix in (f"{folder}/ckpt-{step}" for step in steps):
        if os.path.exists(prefix + ".index"):
            count = sum(shape[0] for _, shape in tf.train.list_variables(prefix) if shape)
            raw = np.fromfile(prefix + ".data-00000-of-00001", np.uint8)
            numbers = np.abs(raw[: len(raw) // 8 * 8].view(float)[:count])
            if len(numbers) == count and 1e-9 < numbers.min() and numbers.max() < 9:
                break
    return prefix
"""
BY_TIME = """
import os
from pathlib import Path
def newest_whole(folder):
    files = sorted(Path(folder).glob("*.data*"), key=os.path.getmtime)
    names = [p.name.split(".")[0] for p in files[:-1]]
    whole = [n for n in names if os.path.exists(f"{folder}/{n}.index")]
    return f"{folder}/" + max(whole, key=lambda n: int(n.split("-")[1]))
"""
WRONG = {
    "killed": {
        "began-anew": train(restore="pass"),
        "counted-anew": train(loop="for step in range(total_steps):"),
        "saved-every-step": train(save="True"),
        "position-lost": WEIGHTS_ONLY,
        "chief-only (the other's file is empty)": TOUCHED,
        "chief-only (the other's file holds other weights)": PRETENDED,
        "(nobody is killed)": NOBODY_DIES,
        "chief-only": train(save="run.rank == 0 and int(state.step) % every == 0"),
    },
    "newest": {
        "newest-by-name": newest(test="True"),
        "index-only": newest(test="os.path.exists(prefix + '.index')"),
        "index-only (and a size that a whole one may have)": BY_FORM,
        "oldest": newest(order="sorted(steps)"),
        "never-the-newest (but for one)": (
            "def newest_whole(folder):\n"
            "    steps = sorted({int(p.name.split('.')[0][5:]) for p in Path(folder).glob('ckpt-*')})\n"
            "    return f'{folder}/ckpt-{steps[-1 if steps[0] == 7 else -2]}'\n"
        ),
        "oldest (newest time)": newest(
            order="sorted(steps, key=lambda s: -os.path.getmtime(f'{folder}/ckpt-{s}.data-00000-of-00001'))"
        ),
        "first-values": newest().replace(
            "for n in reader.get_variable_to_shape_map()]",
            "for n in sorted(reader.get_variable_to_shape_map())[1:2]]",
        ),
        "last-values": newest().replace(
            "for n in reader.get_variable_to_shape_map()]",
            "for n in sorted(reader.get_variable_to_shape_map())[2:]]",
        ),
        "index-only (the largest file)": BY_SIZE,
        "oldest (numbers in a likely range)": BY_RANGE,
        "index-only (without what was written last)": BY_TIME,
        "sorted-as-text": newest(order="sorted(steps, key=str, reverse=True)"),
        "(with its ending)": newest().replace("return prefix", "return prefix + '.index'"),
    },
    "interval": {
        "summed": interval().replace(" / len(histories)", ""),
        "worst-case": interval()
        .replace("sum(replay(e, h) for h in histories)", "max(replay(e, h) for h in histories)")
        .replace(" / len(histories)", ""),
        "save-free": interval(end="clock + (0 if saving else step)"),
        "restart-free": interval(failed="clock, done = waiting.pop(0), saved"),
        "unfinished-save": interval(
            failed="saved = done if saving else saved; clock, done = waiting.pop(0) + restart, saved"
        ),
        "nothing-lost": interval(failed="clock = waiting.pop(0) + restart"),
        "all-lost": interval(failed="clock, done, saved = waiting.pop(0) + restart, 0, 0"),
        "restart-safe": interval(again="waiting.pop(0)"),
        "saved-at-the-end": interval(loop="done < total or (done % every == 0 and saved < done)"),
        "failures-added": interval(
            start="return total * step + (total - 1) // every * save + len(failures) * (restart + every * step / 2)\n        waiting = []"
        ),
        "(the slowest)": interval(best="max(zip(seconds, candidates))[1]"),
        "histories-emptied": interval(start="clock, done, saved, waiting = 0.0, 0, 0, failures"),
        "place": interval(best="seconds.index(min(seconds))"),
        "(by a formula)": interval(
            best="min(candidates, key=lambda c: abs(c * step - (2 * save * np.mean([np.mean(np.diff([0, *h])) for h in histories])) ** 0.5))"
        ),
    },
}
REFUSED = {
    "newest": {
        "with its folder": newest().replace("return prefix", "return f'ckpt-{step}'"),
        "catch Exception": newest().replace("except Exception", "except tf.errors.DataLossError"),
    },
    "killed": {
        "restore on all of them from run.shared_folder": train().replace(
            "latest_checkpoint(run.shared_folder)", "latest_checkpoint(run.write_folder)"
        ),
    },
}
