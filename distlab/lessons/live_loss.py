"""Lesson 00: a Keras callback that draws the loss in the output of the cell that trains."""

import keras
from IPython.display import display

from distlab import figures


class LiveLoss(keras.callbacks.Callback):
    """Draw the loss of each few steps while `fit` runs, in one picture that grows.

    Keras reports the mean loss of the epoch so far; its sums, before and after the last
    `every` steps, give the loss of these steps alone, so an epoch's beginning makes no jump.
    Batches should be of one size. `steps` and `losses` hold the points.
    """

    def __init__(self, title: str, every: int = 5) -> None:
        super().__init__()
        self.title, self.every = title, every
        self.steps: list[int] = []
        self.losses: list[float] = []
        self._done, self._sum, self._since, self._epochs = 0, 0.0, 0, {}

    def on_train_begin(self, logs: dict | None = None) -> None:
        self._screen = display("The loss will be drawn here.", display_id=True)

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self._sum, self._since = 0.0, 0
        if epoch:
            self._epochs[f"epoch {epoch + 1}"] = float(self._done)

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        self._done += 1
        self._since += 1
        if self._done == 1 or self._since == self.every:
            total = float((logs or {})["loss"]) * (batch + 1)
            self.steps.append(self._done)
            self.losses.append((total - self._sum) / self._since)
            self._sum, self._since = total, 0
        if self.steps[-1] == self._done and len(self.steps) % 2:
            self._draw()

    def on_train_end(self, logs: dict | None = None) -> None:
        self._draw()

    def _draw(self) -> None:
        words = {"x_label": "step", "y_label": f"loss of the last {self.every} steps"}
        curve = {"loss": (self.steps, self.losses)}
        self._screen.update(figures.lines(curve, title=self.title, marks=self._epochs, **words))
