"""Show how each way to start workers reacts to a death, and the steps that it costs."""

from collections.abc import Sequence
from dataclasses import replace

from distlab.errors import CourseError
from distlab.explorables.controls import Choice, Slider
from distlab.explorables.explorer import Explorer, Try, explore
from distlab.figures import Picture, timeline

STEPS, NEVER = 120, "never"  # as many as lesson 19's program takes
DEATHS = range(10, 111, 20)  # the slider's places
SAVES = ("5", "10", "20", "40", NEVER)
WAYS = {  # who notices, and who starts what again
    "by hand": (
        "Worker 0 misses worker 1's heartbeats after 10 to 15 s and stops with UnavailableError.",
        "You start both again, with a TF_CONFIG that you type.",
    ),
    "distlab run": (
        "The launcher sees its child end, and ends worker 0.",
        "It starts both on new ports, up to --max-restarts times.",
    ),
    "Ray": (
        "The node's raylet sees the actor's process end.",
        "Ray starts the actor again, and the launcher starts both tasks on new ports.",
    ),
    "Spark": (
        "The executor sees the task fail, and tells the driver.",
        "The driver repeats the stage, since a shuffle follows. Both tasks get new addresses.",
    ),
    "Slurm": (
        "slurmd sees the task end. With --kill-on-bad-exit, srun ends the others.",
        "The launcher's script puts the job back into the queue (scontrol requeue).",
    ),
    "Kubernetes": (
        "The kubelet sees the container end.",
        "It starts it again. The other one fails in its next all-reduce, and is started too.",
    ),
}


def death_explorer(way: str = "distlab run", dies: int = 50, saves: str = "20") -> Explorer:
    """Show a run of two workers that one of WAYS started. Worker 1 dies after step `dies`.

    `dies` is one of DEATHS, `saves` one of SAVES. Raises CourseError for other values.
    """
    if dies not in DEATHS:
        raise CourseError(f"dies must be one of {', '.join(map(str, DEATHS))}, got {dies!r}.")
    start = {"way": "distlab run", "dies": 50, "saves": "20"}
    return explore(
        show_death,
        tries=[
            Try(
                "Lose fewer steps: what do you change?",
                start,
                {"saves": ["5", "10"]},
                "How often the program saves. On average half an interval is lost, whoever does "
                "the restart. Here a death falls on a multiple of ten; yours won't.",
            ),
            Try(
                "Start it by hand: who starts it again?",
                start,
                {"way": "by hand"},
                "You. Until then nobody trains, at night as well. That is what the other ways do "
                "for you; the steps that are lost are the same.",
            ),
            Try(
                "Restarted on Slurm, and back at step 0: why?",
                {**start, "way": "Slurm"},
                {"saves": NEVER},
                "The program doesn't save. An engine restarts processes, and can't know at which "
                "step they were.",
            ),
        ],
        way=Choice("Started by", list(WAYS), way),
        dies=Slider("Worker 1 dies after step", DEATHS[0], DEATHS[-1], dies, DEATHS.step),
        saves=Choice("A checkpoint every … steps", SAVES, saves),
    )


def show_death(way: str, dies: int, saves: str) -> Sequence[Picture]:
    """Draw both workers' steps in the order of training, and say who acts."""
    kept = 0 if saves == NEVER else dies // int(saves) * int(saves)
    spans = [
        (0, kept, "trained once"),
        (kept, dies, "lost"),
        (dies, dies + dies - kept, "trained again"),
    ]
    spans.append((spans[-1][1], dies + STEPS - kept, "trained once"))
    rows = [
        (f"worker {worker}", start, end, f"{end - start}", kind)
        for worker in range(2)
        for start, end, kind in spans
        if end > start
    ]
    notices, restarts = WAYS[way]
    caption = (
        f"{notices} {restarts} The program resumes from step {kept}, so {dies - kept} steps "
        f"are trained twice."
    )
    title = f"{way}: worker 1 dies after step {dies} of {STEPS}"
    drawn = timeline(rows, title=title, axis="steps trained", unit="steps")
    ideas = {"trained once": "forward", "lost": "over", "trained again": "data"}
    return [replace(drawn, caption=caption).with_ideas(ideas)]
