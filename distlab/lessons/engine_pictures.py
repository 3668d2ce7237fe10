"""Lesson 19: who starts whom, and how long each way took to start and to start again."""

from collections.abc import Mapping

from distlab import figures
from distlab.figures import Box, Picture, diagram
from distlab.lessons.engine_runs import EngineRun

# the service you call; the starter on each machine; the process's parent; TF_CONFIG's source
COLUMNS = {
    "by hand": ("you", "you again", "a shell", "you type it"),
    "distlab run": (
        "launcher",
        "launcher of\neach machine",
        "its child",
        "addresses of\nall who joined",
    ),
    "Ray": ("head node", "raylet", "an actor", "addresses\nof actors"),
    "Spark": ("driver,\nmaster", "executor,\na JVM", "a barrier\ntask", "allGather in\nthe stage"),
    "Slurm": ("slurmctld", "slurmd", "a task\nof srun", "SLURM_…\nvariables"),
    "Kubernetes": ("API server", "kubelet", "a pod", "the pod's\nindex"),
}
ROWS = ("is asked", "starts it", "holds it", "TF_CONFIG")
KINDS = ("data", "server", "variables", "reduce")
LEFT_PX, TOP_PX, ROW_PX, BOX_PX, GAP_PX = 76.0, 62.0, 58.0, 46.0, 6.0
WIDTH_PX = 720.0


def draw_who_starts_whom() -> Picture:
    """Draw, for each way, the service you call, the process's starter, and TF_CONFIG's source."""
    wide = (WIDTH_PX - LEFT_PX - GAP_PX * (len(COLUMNS) - 1)) / len(COLUMNS)
    boxes = {
        name: Box(name, 0, TOP_PX + number * ROW_PX, LEFT_PX - 6, BOX_PX, "text")
        for number, name in enumerate(ROWS)
    }
    for place, (way, texts) in enumerate(COLUMNS.items()):
        x = LEFT_PX + place * (wide + GAP_PX)
        boxes[way] = Box(way, x, 30, wide, 26, "text")
        for number, (text, kind) in enumerate(zip(texts, KINDS)):
            y = TOP_PX + number * ROW_PX
            boxes[f"{way} {number}"] = Box(text, x, y, wide, BOX_PX, kind)
    bottom = TOP_PX + len(ROWS) * ROW_PX
    text = "python train.py: reads TF_CONFIG, trains, all-reduces with the others"
    boxes["program"] = Box(text, LEFT_PX, bottom, WIDTH_PX - LEFT_PX, 40, "compute")
    rows = "; ".join(
        f"{way}: {', '.join(text.replace(chr(10), ' ') for text in texts)}"
        for way, texts in COLUMNS.items()
    )
    alt = (
        "Six ways to start workers, one in each column, with who is asked, who starts the process "
        f"on each machine, what holds it there, and what TF_CONFIG is made of. {rows}. All six end "
        "in the same process, python train.py, which reads TF_CONFIG and trains."
    )
    return diagram(boxes, title="Who starts whom", alt=alt, height_px=bottom + 46)


def draw_starts(runs: Mapping[str, EngineRun]) -> Picture:
    """Draw each run as a lane: starting, training, no training after the kill, training."""
    rows = []
    for way, run in runs.items():
        ends = [0.0, run.first_at, run.killed_at, run.again_at, run.seconds]
        if run.killed_at is None:
            ends = [0.0, run.first_at, run.seconds]
        kinds = ("starting", "training", "starting again", "training")
        rows += [(way, start, end, "", kind) for start, end, kind in zip(ends, ends[1:], kinds)]
    rows.sort(key=lambda row: row[4] == "training")  # which is green, as the program above
    return figures.timeline(rows, title="From the typed line to the end, worker 1 killed once")
