"""The actions of lab 10's closures, in order: read the parameters, and apply an update later."""

import numpy as np

Event = tuple[str, int]  # ("read" or "apply", number of the closure)


def draw_events(seed: int, workers: int, updates: int) -> list[Event]:
    """Return what closures did, in order: each reads, and applies its update later."""
    rng = np.random.default_rng(seed)
    events: list[Event] = []
    under_way: list[int] = []
    started = 0
    while started < updates or under_way:
        may_start = started < updates and len(under_way) < workers
        if may_start and (not under_way or rng.random() < 0.6):
            events.append(("read", started))
            under_way.append(started)
            started += 1
        else:
            done = under_way.pop(int(rng.integers(len(under_way))))
            events.append(("apply", done))
    return events
