"""The learning rate of a large batch: linear scaling and warm-up, for every batch size."""

from dataclasses import replace

import numpy as np

from distlab.explorables.controls import Slider
from distlab.explorables.explorer import Explorer, Try, explore
from distlab.figures import Picture, lines
from distlab.figures.canvas import say_number
from utils.measure import count
from utils.training.large_batch import list_rates, plan_rates

MAX_POINTS = 60


def rates_explorer(
    base_rate: float, base_batch_size: int, *, examples: int, epochs: int
) -> Explorer:
    """Show the rates of a run for a chosen batch size and warm-up, with and without scaling."""

    def show(power: int, warm_up_epochs: float) -> Picture:
        batch = base_batch_size * 2**power
        return show_rates(base_rate, base_batch_size, batch, warm_up_epochs, examples, epochs)

    most = min(7, (examples // base_batch_size).bit_length() - 1)
    first = min(4, most)
    peak = base_rate * 2**first
    return explore(
        show,
        tries=[
            Try(
                f"{2**first} times the batch, no warm-up: how does it begin?",
                {"power": first, "warm_up_epochs": 2},
                {"warm_up_epochs": 0},
                f"At the peak, {say_number(peak)}. Random weights get {2**first} times the rate of "
                f"batch {base_batch_size} in the first step.",
            ),
            Try(
                "What changes if the batch stays small?",
                {"power": first, "warm_up_epochs": 2},
                {"power": 0},
                f"The peak falls to {say_number(base_rate)}, and an epoch has "
                f"{count(examples // base_batch_size, 'step')} instead of "
                f"{examples // (base_batch_size * 2**first)}.",
            ),
        ],
        power=Slider("Doublings of the batch", 0, most, first),
        warm_up_epochs=Slider("Warm-up", 0, epochs / 2, 2, 0.5, "epochs"),
    )


def show_rates(
    base_rate: float, base_batch: int, batch: int, warm_up_epochs: float, examples: int, epochs: int
) -> Picture:
    """Return the rate over the epochs of a run with batches of `batch`."""

    def curve(size: int, warm: float) -> tuple[np.ndarray, np.ndarray]:
        plan = plan_rates(
            base_rate, base_batch, size, examples=examples, epochs=epochs, warm_up_epochs=warm
        )
        rates = list_rates(plan)
        places = np.unique(np.linspace(0, len(rates) - 1, MAX_POINTS).round().astype(int))
        return epochs * places / len(rates), rates[places]

    own = curve(batch, warm_up_epochs)
    steps = examples // batch
    words = (
        f"{batch:,} is {batch // base_batch} × {base_batch}, so the peak is "
        f"{say_number(own[1].max())}. An epoch is {count(steps, 'step')}, and the warm-up "
        f"{count(round(warm_up_epochs * steps), 'step')}."
    )
    picture = lines(
        {"scaled": own, f"batch {base_batch}": curve(base_batch, 0)},
        x_label="epoch",
        y_label="learning rate",
        title=f"The rates of batch {batch:,}",
    )
    return replace(picture, caption=words)
