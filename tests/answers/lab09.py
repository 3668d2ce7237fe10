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


def one(name, arguments, expression):
    return f"import math\nimport numpy as np\ndef {name}({arguments}):\n    return {expression}\n"


def interval(expression):
    return one("best_interval", "c, m", expression)


def loss(expression):
    return one("lost_share", "t, c, m", expression)


RIGHT = {
    "killed": [train(), RESTORE_OR_INITIALIZE, BEFORE_THE_STEP],
    "newest": [
        newest(),
        RESTORING,
        newest(order="sorted(steps)[::-1]", test="read(prefix) is not None"),
    ],
    "interval": [
        interval("math.sqrt(2 * c * m)"),
        interval("np.sqrt(2.0 * c * m)"),
        interval("(c * m / 0.5) ** (1 / 2)"),
    ],
    "loss": [
        loss("c / t + t / (2 * m)"),
        loss("(2 * m * c + t * t) / (2 * m * t)"),
        loss("np.add(c / t, 0.5 * t / m)"),
    ],
}
WRONG = {
    "killed": {
        "began-anew": train(restore="pass"),
        "counted-anew": train(loop="for step in range(total_steps):"),
        "saved-every-step": train(save="True"),
        "chief-only": train(save="run.rank == 0 and int(state.step) % every == 0"),
    },
    "newest": {
        "newest-by-name": newest(test="True"),
        "index-only": newest(test="os.path.exists(prefix + '.index')"),
        "oldest": newest(order="sorted(steps)"),
        "sorted-as-text": newest(order="sorted(steps, key=str, reverse=True)"),
    },
    "interval": {
        "two-forgotten": interval("math.sqrt(c * m)"),
        "halved": interval("math.sqrt(c * m / 2)"),
        "no-root": interval("2 * c * m"),
    },
    "loss": {
        "whole-interval": loss("c / t + t / m"),
        "failures-ignored": loss("c / t"),
        "checkpoints-ignored": loss("t / (2 * m)"),
    },
}
