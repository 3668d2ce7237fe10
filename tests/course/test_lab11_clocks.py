"""Lab 11 measures for real: what its clocks read, and what it makes of times."""

import numpy as np
import pytest
from lab11_times import GivenMeter, give_times

from distlab.labs.lab11 import exercise as lab11


def test_an_epoch_is_read_to_its_end_and_takes_time_by_both_clocks():
    lab11.measure_naive(lab11.serve_pipeline())
    meter = lab11.EpochMeter(lab11.serve_pipeline())
    meter.ask(lab11.Folder(lab11._write_shards(1).name), 600)
    epoch = meter.ask()
    assert epoch["sizes"] == [600, 600, 600, 200] and epoch["images"].shape == (2000, 28, 28, 1)
    assert all(meter.epochs[0] > 0) and lab11._naive_seconds[0] > 0


@pytest.mark.parametrize(("epoch", "ratio"), [(0.25, 4.0), (0.8, 1.25), (2.0, 0.5)])
def test_the_ratio_is_that_of_the_epochs(epoch, ratio):
    with give_times(epoch, ahead=1.0):
        meter = GivenMeter(lambda *arguments: {})
        meter.ask("folder", 64)
        assert [meter.ask() for _ in range(4)] == [{}] * 4
        assert meter.compare(1.0, 3) == pytest.approx(ratio)
        assert meter.compare_all(1.0) == pytest.approx(4 / (1 + 4 * epoch))


def test_the_better_of_clock_and_processor_counts():
    meter = GivenMeter(lambda *arguments: {})
    meter.epochs = [np.array([0.5, 0.2]), np.array([0.1, 0.3]), np.array([0.5, 0.4])]
    assert meter.compare(1.2, 3) == pytest.approx(4.0), "the mean of the processor's seconds"
    assert meter.compare(1.2, 2) == pytest.approx(4.0), "the median by the clock"
