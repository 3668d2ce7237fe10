"""The host's loop: what a fast device waits for, and how `steps_per_execution` shortens it."""

from dataclasses import replace

from distlab.explorables.controls import Slider
from distlab.explorables.explorer import Explorer, explore
from distlab.figures import Picture, timeline
from distlab.figures.canvas import say_number
from utils.measure import count

STEPS = 16
CALLBACKS = "callbacks, and the next start"


def host_loop_explorer() -> Explorer:
    """Show host and device for 16 steps, 2**`power` of them in each execution."""
    return explore(
        show_host_loop,
        power=Slider("steps_per_execution", 0, 4, 0, base=2),
        step_ms=Slider("One step on the device", 1, 20, 4, unit="ms"),
        host_ms=Slider("The host between two executions", 0, 20, 6, unit="ms"),
    )


def show_host_loop(power: int, step_ms: float, host_ms: float) -> Picture:
    """Return the timeline of 16 steps in executions of 2**power, with the device's share."""
    each, rows, now = 2**power, [], 0.0
    for execution in range(STEPS // each):
        if host_ms:
            rows.append(("host", now, now + host_ms, "", CALLBACKS))
            rows.append(("device", now, now + host_ms, "", "waits"))
        now += host_ms
        for step in range(each):
            number = str(execution * each + step + 1)
            rows.append(("device", now, now + step_ms, number, "computes"))
            now += step_ms
    busy = STEPS * step_ms / now
    words = (
        f"{STEPS} steps take {say_number(now)} ms, and the device computes for "
        f"{100 * busy:.0f} % of it. Callbacks, a checkpoint or Ctrl-C have to wait for up to "
        f"{count(each, 'step')}."
    )
    title = f"steps_per_execution={each}: back in Python {count(STEPS // each, 'time')}"
    picture = timeline(rows, title=title, unit="ms").with_ideas(
        {"computes": "forward", "waits": "wait", CALLBACKS: "data"}
    )
    return replace(picture, caption=words)
