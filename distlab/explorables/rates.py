"""The learning rate of a large batch: linear scaling and warm-up, and what they were worth."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from distlab.explorables.controls import Slider
from distlab.explorables.explorer import Explorer, Try, explore
from distlab.figures import Picture, bars, lines
from distlab.figures.canvas import say_number
from utils.measure import count
from utils.training.large_batch import list_rates, plan_rates

MAX_POINTS = 60


WAYS = ("same rate", "scaled", "scaled, warm-up")
MEASURED_EPOCHS = 2  # of the warm-up that was measured
Errors = Mapping[tuple[str, int], Sequence[float]]  # of a way and a batch: each seed's, in percent


def rates_explorer(
    base_rate: float, base_batch_size: int, *, examples: int, epochs: int, errors: Errors
) -> Explorer:
    """Show the rates of a run for a chosen batch and warm-up, and the errors that were measured.

    `errors` has three or more batches for each of WAYS. All are powers of two, the base batch too.
    The last way had a warm-up of MEASURED_EPOCHS.
    """

    def show(power: int, warm_up_epochs: float) -> list[Picture]:
        batch = 2**power
        rates = show_rates(base_rate, base_batch_size, batch, warm_up_epochs, examples, epochs)
        if any((way, batch) not in errors for way in WAYS):
            return [replace(rates, caption=f"{rates.caption} No run had batch {batch:,}.")]
        return [rates, _draw_errors(errors, batch, warm_up_epochs)]

    sizes = sorted({size for _, size in errors})
    powers = [size.bit_length() - 1 for size in sizes]
    return explore(
        show,
        tries=_list_tries(errors, sizes, powers),
        power=Slider("Batch", powers[0], powers[-1], powers[-3], grid=powers, base=2),
        warm_up_epochs=Slider("Warm-up", 0, epochs / 2, MEASURED_EPOCHS, 0.5, "epochs"),
    )


def _list_tries(errors: Errors, sizes: Sequence[int], powers: Sequence[int]) -> list[Try]:
    size, largest = sizes[-2:]
    same, scaled, warmed = ({n: np.mean(errors[way, n]) for n in sizes} for way in WAYS)
    best = min(WAYS, key=lambda way: np.mean(errors[way, largest]))
    start = {"power": powers[-2], "warm_up_epochs": MEASURED_EPOCHS}
    return [
        Try(
            f"Batch {size:,} without a warm-up: what becomes of the error?",
            start,
            {"warm_up_epochs": 0},
            f"It goes from {warmed[size]:.0f} % to {scaled[size]:.0f} %, and the seeds disagree. "
            f"Random weights get {size // sizes[0]} times the rate in the first step.",
        ),
        Try(
            f"Go on to batch {largest:,}: which way is the best one there?",
            start,
            {"power": powers[-1]},
            f"{best.capitalize()}, with {np.mean(errors[best, largest]):.0f} %. The rule with its "
            f"warm-up gives {warmed[largest]:.0f} %, and guessing gives 90 %.",
        ),
        Try(
            "Back to the smallest batch: what is the rule worth there?",
            start,
            {"power": powers[0]},
            f"Nothing: all ways have its rate, and {same[sizes[0]]:.0f} % error. But it takes "
            f"{size // sizes[0]} times as many steps.",
        ),
    ]


def _draw_errors(errors: Errors, batch: int, warm_up_epochs: float) -> Picture:
    """Draw the measured error of each way with this batch; the chosen way is bold."""
    means = {way: float(np.mean(errors[way, batch])) for way in WAYS}
    base = np.mean(errors[WAYS[0], min(size for _, size in errors)])
    chosen = {0: WAYS[1], MEASURED_EPOCHS: WAYS[2]}.get(warm_up_epochs)
    warm_up = f"{say_number(warm_up_epochs)} epoch{'s' * (warm_up_epochs != 1)}"
    says = f"No run had a warm-up of {warm_up}. 0 and {MEASURED_EPOCHS} were measured."
    if chosen:
        seeds = ", ".join(f"{each:.1f}" for each in sorted(errors[chosen, batch]))
        says = f"{chosen}: {seeds} % with three seeds."
    ideas = {way: "over" if mean > 1.5 * base else "forward" for way, mean in means.items()}
    if "over" in ideas.values():
        says += f" Red is over 1.5 times the {base:.1f} % of the smallest batch."
    picture = bars(means, unit="%", title=f"Batch {batch:,}: the measured test error")
    chart = {**picture.chart, "most": 100, "bold": chosen or ""}
    return replace(picture, chart=chart, caption=says).with_ideas(ideas)


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
        {"your choice": own, f"batch {base_batch}": curve(base_batch, 0)},
        x_label="epoch",
        y_label="learning rate",
        title=f"The rates of batch {batch:,}",
    )
    return replace(picture, caption=words)
