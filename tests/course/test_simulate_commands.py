"""`distlab simulate` from a shell: the numbers of each model, its table, its picture, bad input."""

import json
import math

import pytest

from distlab import cli

PS = "parameter-server --workers 8 --step-seconds 0.1 --distribution constant --updates 800"
FAILURES = (
    "failures --nodes 1024 --node-mtbf-hours 50000 --checkpoint-seconds 60 --restart-seconds 300"
)
MEMORY = "memory --parameters 7.5e9 --data-parallel 64 --zero-stage 1"
STEP = (
    "step --forward-seconds 0.1 --backward-seconds 0.2 --gradient-bytes 1e8 --devices 8 "
    "--latency 10us --bandwidth 10GB/s"
)
ALL = (PS, FAILURES, MEMORY, STEP)


@pytest.fixture
def simulate(capsys):
    return lambda line: (cli.main(["simulate", *line.split()]), *capsys.readouterr())


@pytest.fixture
def read(simulate):
    def call(line):
        status, output, errors = simulate(f"{line} --json")
        assert status == 0, errors
        return json.loads(output)

    return call


def test_parameter_server(read):
    found = read(PS)
    assert list(found) == [
        "mean_staleness",
        "staleness_histogram",
        "updates_per_second",
        "synchronous_updates_per_second",
    ]
    assert found["updates_per_second"] == pytest.approx(80)
    assert found["synchronous_updates_per_second"] == pytest.approx(80)
    assert found["staleness_histogram"] == {**{str(k): 1 for k in range(7)}, "7": 793}


def test_exponential_workers_have_a_mean_staleness_of_workers_less_one(read):
    line = PS.replace("constant", "exponential").replace("800", "200000")
    found = read(f"{line} --backup-workers 3 --seed 5")
    assert found["mean_staleness"] == pytest.approx(7, rel=0.01)
    assert found["updates_per_second"] == pytest.approx(80, rel=0.02)
    fifth = sum(1 / k for k in range(4, 9)) * 0.1  # expectation of the fifth of 8 exponentials
    assert found["synchronous_updates_per_second"] == pytest.approx(5 / fifth, rel=0.02)
    again = read(f"{line} --backup-workers 3 --seed 5")
    assert again == found != read(f"{line} --backup-workers 3 --seed 6")


def test_step_seconds_are_the_mean_under_every_distribution(read):
    line = PS.replace("constant", "lognormal").replace("800", "100000")
    assert read(f"{line} --sigma 0.8")["updates_per_second"] == pytest.approx(80, rel=0.02)


def test_a_slow_worker_holds_up_rounds_unless_it_is_not_waited_for(read):
    slow = read(f"{PS} --slow-worker 5")
    assert slow["synchronous_updates_per_second"] == pytest.approx(8 / 0.5)
    assert slow["updates_per_second"] == pytest.approx(7 / 0.1 + 1 / 0.5, rel=0.02)
    backup = read(f"{PS} --slow-worker 5 --backup-workers 1")
    assert backup["synchronous_updates_per_second"] == pytest.approx(7 / 0.1)


def test_servers_send_and_receive_the_model_for_every_gradient(read):
    """64 workers, 4 GB, four servers at 10 Gb/s: the servers need 51.2 s for a round's pulls."""
    line = (
        "parameter-server --workers 64 --step-seconds 1 --distribution constant --updates 640 "
        "--servers 4 --parameter-bytes 4e9 --bandwidth 10Gb/s"
    )
    assert read(line)["synchronous_updates_per_second"] == pytest.approx(64 / (1 + 6.4 + 51.2))
    assert read(line)["updates_per_second"] == pytest.approx(1 / 0.8, rel=0.02)


def test_failures_are_dalys_exact_cost_and_its_minimum(read):
    found, mtbf = read(FAILURES), 50000 * 3600 / 1024
    best = found["optimal_interval_seconds"]

    def cost(seconds):
        return mtbf * math.exp(300 / mtbf) * math.expm1((seconds + 60) / mtbf) / seconds

    assert found["effective_training_time"] == pytest.approx(1 / cost(best), rel=1e-12)
    assert all(cost(best * factor) > cost(best) for factor in (0.99, 1.01))
    assert found["young_seconds"] == pytest.approx(math.sqrt(2 * 60 * mtbf))
    root = math.sqrt(60 / (2 * mtbf))
    daly = found["young_seconds"] * (1 + root / 3 + root**2 / 9) - 60
    assert found["daly_seconds"] == pytest.approx(daly)
    at_hour = read(f"{FAILURES} --interval-seconds 3600")
    assert at_hour["effective_training_time"] == pytest.approx(1 / cost(3600), rel=1e-12)


def test_memory(read):
    sizes = read(MEMORY)["bytes_per_device"]
    optimizer = 12 * 7.5e9 / 64
    assert sizes == {
        "parameters": 15e9,
        "gradients": 15e9,
        "optimizer": optimizer,
        "activations": 0,
        "total": 30e9 + optimizer,
    }
    cut = read(f"{MEMORY} --tensor-parallel 4 --pipeline-parallel 2 --activation-bytes 16e9")
    assert cut["bytes_per_device"]["parameters"] == 15e9 / 8
    assert cut["bytes_per_device"]["activations"] == 16e9
    again = read(f"{MEMORY} --activation-bytes 16e9 --recompute --layers 64")
    assert again["bytes_per_device"]["activations"] == 4e9


def test_step(read):
    found = read(f"{STEP} --no-overlap --bucket-bytes 1e8")
    ring = 14 * (10e-6 + 1e8 / 8 / 10e9)
    assert found["step_seconds"] == pytest.approx(0.3 + ring)
    assert found["exposed_communication_seconds"] == pytest.approx(ring)
    assert found["efficiency"] == pytest.approx(0.3 / (0.3 + ring))
    with_unit = STEP.replace("--bandwidth 10GB/s", "--bandwidth 80Gb/s")
    assert read(f"{with_unit} --latency 0.01ms") == read(STEP)
    nodes = "--ranks-per-node 4 --node-latency 1us --node-bandwidth 100GB/s"
    assert read(f"{STEP} {nodes}")["step_seconds"] == read(STEP)["step_seconds"]


@pytest.mark.parametrize("line", ALL)
def test_each_prints_a_table(simulate, line):
    status, output, _ = simulate(line)
    assert status == 0 and len(output.splitlines()) >= 4
