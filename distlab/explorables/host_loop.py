"""The host's loop: what a fast device waits for, and how `steps_per_execution` shortens it."""

from dataclasses import replace

from distlab.explorables.controls import Slider
from distlab.explorables.explorer import Explorer, Try, explore
from distlab.figures import Picture, timeline
from distlab.figures.canvas import say_number
from utils.measure import count

STEPS = 16
CALLBACKS = "callbacks, and the next start"


def host_loop_explorer() -> Explorer:
    """Show host and device for 16 steps, 2**`power` of them in each execution."""
    start = {"power": 0, "step_ms": 4, "host_ms": 6}
    needed = next(power for power in range(5) if _find_busy(power, 4, 6) >= 0.9)
    return explore(
        show_host_loop,
        tries=[
            Try(
                "Which steps_per_execution keeps the device busy for 90 %?",
                start,
                {"power": needed},
                f"{2**needed}. The host steps in once instead of {2**needed} times, and Ctrl-C "
                "has to wait for as many steps.",
            ),
            Try(
                "A step takes 5 times as long: is it still worth it?",
                start,
                {"step_ms": 20},
                f"Less: the device is busy for {100 * _find_busy(0, 20, 6):.0f} % even with one "
                f"step per execution. Before, it was {100 * _find_busy(0, 4, 6):.0f} %.",
            ),
        ],
        power=Slider("steps_per_execution", 0, 4, 0, base=2),
        step_ms=Slider("One step on the device", 1, 20, 4, unit="ms", grid=(1, 2, 4, 8, 12, 20)),
        host_ms=Slider(
            "The host between two executions", 0, 20, 6, unit="ms", grid=(0, 1, 3, 6, 12, 20)
        ),
    )


def _find_busy(power: int, step_ms: float, host_ms: float) -> float:
    """Return the share of the time that the device computes."""
    return step_ms / (step_ms + host_ms / 2**power)


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
    words = (
        f"{STEPS} steps take {say_number(now)} ms, and the device computes for "
        f"{100 * _find_busy(power, step_ms, host_ms):.0f} % of it. Callbacks, a checkpoint or "
        "Ctrl-C have to wait for up to "
        f"{count(each, 'step')}."
    )
    title = f"steps_per_execution={each}: back in Python {count(STEPS // each, 'time')}"
    picture = timeline(rows, title=title, unit="ms").with_ideas(
        {"computes": "forward", "waits": "wait", CALLBACKS: "data"}
    )
    return replace(picture, caption=words)
