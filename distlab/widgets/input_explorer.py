"""The input explorer: which stage of a pipeline to mend, on stage costs that you measured."""

import os

from distlab.figures import bars
from distlab.figures.canvas import say_number
from distlab.widgets.controls import Choice, Slider
from distlab.widgets.explorer import Explorer, explore
from utils.simulate.input import CACHES, InputChoice, InputCosts, InputPrediction, predict_input

NO, YES = "no", "yes"


def input_explorer(costs: InputCosts, step_ms: float = 5.0, batch: int = 128) -> Explorer:
    """Show what each setting would change in a pipeline whose stages cost `costs` an image."""

    def show(
        reads: int,
        calls: int,
        whole_batches: str,
        cache: str,
        prefetch: str,
        step_ms: float,
        cores: int,
    ) -> str:
        choice = InputChoice(reads, calls, whole_batches == YES, cache, prefetch == YES)
        return show_input(costs, choice, step_ms / 1e3, cores, batch)

    return explore(
        show,
        reads=Slider("Shards read at once", 1, 32, 1),
        calls=Slider("Calls of each map at once", 1, 16, 1),
        whole_batches=Choice("Maps on whole batches", [NO, YES], NO),
        cache=Choice("Cache of", list(CACHES), "nothing"),
        prefetch=Choice("Prefetch", [NO, YES], NO),
        step_ms=Slider("Training step", 0, 100, step_ms, 0.5, "ms"),
        cores=Slider("Cores", 1, 64, min(64, os.cpu_count() or 2)),
    )


def show_input(
    costs: InputCosts, choice: InputChoice, step_seconds: float, cores: int, batch: int
) -> str:
    """Return the picture of one batch's time and a sentence, as HTML."""
    found = predict_input(costs, choice, cores=cores, step_seconds=step_seconds, batch=batch)
    parts = {
        "read (waiting)": 1e3 * found.read_seconds,
        "parse and augment": 1e3 * found.work_seconds,
        "training step": 1e3 * found.step_seconds,
        "one batch, all told": 1e3 * found.batch_seconds,
    }
    picture = bars(
        parts, unit="ms", title=f"One batch of {batch}, predicted", highlight="one batch, all told"
    )
    return f"{picture.html}<p>{explain_input(found)}</p>"


def explain_input(found: InputPrediction) -> str:
    """Return in words how fast the loop goes and what it waits for."""
    if found.batch_seconds == 0:
        return "Nothing takes any time: there is nothing to wait for."
    rate = say_number(round(found.images_per_second))
    idle = 100 * found.wait_seconds / found.batch_seconds
    words = f"{rate} images per second. The longest part is {found.bottleneck}. "
    if idle < 0.5:
        return words + "The step never waits for its input."
    return words + f"The step waits {say_number(round(idle))} % of the time for its input."
