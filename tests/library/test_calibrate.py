"""Plans: predictions from a profile by hand, known machines, and a real calibration."""

import json
from functools import partial

import pytest
from brief_measuring import build_briefly

from utils.calibrate import (
    MACHINES,
    LocalCosts,
    Profile,
    Scenario,
    find_machine,
    predict,
    predict_local,
    read_profile,
)
from utils.calibrate.local import CROWDED, make_profile
from utils.cluster import make_launcher
from utils.errors import DistributedError
from utils.simulate.collective import Link
from utils.simulate.failures import best_interval_seconds, effective_time_fraction
from utils.simulate.machines import NETWORKS
from utils.simulate.step import Network, StepWork, simulate_step

PROFILE = Profile(0.1, 0.2, 400e6, batch=256)
NETWORK = Network(Link(1e-5, 10e9))
LOCAL = LocalCosts(2, 0.020, 0.019, 0.026, 0.024, 0.001, 0.0008, 0.0015, 0.0012, 0.003, 0.0025)


def one(profile=PROFILE, **settings):
    (row,) = predict(profile, Scenario(**{"network": NETWORK, "devices": (64,), **settings}))
    return row


def test_a_prediction_is_the_simulated_step():
    row = one()
    step = simulate_step(StepWork(0.1, 0.2, 400e6), 64, NETWORK)
    assert row.step_seconds == step.step_seconds
    assert row.efficiency == pytest.approx(step.efficiency)
    assert row.parts["network"] == pytest.approx(step.exposed_communication_seconds)
    assert row.low < row.step_seconds < row.high <= 1.3 * row.step_seconds
    assert (row.hours, row.cost, row.bottleneck) == (None, None, "computation")


def test_strong_scaling_divides_the_batch_and_fixed_time_stays():
    row = one(Profile(0.1, 0.2, 0, batch=256, fixed_seconds=0.06), scaling="strong")
    assert row.step_seconds == pytest.approx(0.06 + 0.24 / 64)
    assert row.efficiency == pytest.approx(0.3 / 64 / row.step_seconds)
    with pytest.raises(DistributedError, match="Strong scaling over"):
        one(scaling="strong", devices=(512,))


def test_hours_and_cost():
    row = one(examples=1_000_000, epochs=90, price=2.0)
    hours = 90e6 / (64 * 256 / row.step_seconds) / 3600
    assert row.hours == pytest.approx(hours) and row.cost == pytest.approx(hours * 64 * 2)
    profile = Profile(0.1, 0.2, 400e6, batch=256, checkpoint_seconds=30, restart_seconds=300)
    failing = one(profile, examples=1_000_000, epochs=90, node_mtbf_hours=1000)
    mtbf = 1000 * 3600 / 64
    share = effective_time_fraction(best_interval_seconds(30, mtbf), 30, mtbf, 300)
    assert failing.hours == pytest.approx(hours / share)
    assert failing.step_seconds == row.step_seconds


def test_what_becomes_the_limit():
    assert one(network=Network(Link(1e-5, 1e8))).bottleneck == "network"
    assert one(Profile(0.1, 0.2, 1, straggler_sigma=2.0)).bottleneck == "stragglers"
    assert one(Profile(0.1, 0.2, 1, input_seconds=1.0)).bottleneck == "input"
    stopping = Profile(0.1, 0.2, 1, checkpoint_seconds=600, restart_seconds=3600)
    assert one(stopping, node_mtbf_hours=20).bottleneck == "failures"
    slow = one(
        Profile(0.1, 0.2, 1, flops_per_example=1e9, operations=1000),
        machine=find_machine("A100 on HDR"),
        network=None,
    )
    assert slow.bottleneck == "launches"
    assert slow.parts["launches"] == pytest.approx(0.004, rel=0.01)


def test_nothing_is_predicted_for_a_run_that_cannot_exist():
    machine = find_machine("H100 on 400 Gb/s")
    large = Profile(0.1, 0.2, 400e6, parameters=70e9, flops_per_example=1e12)
    row = one(large, machine=machine, network=None)
    assert (row.bottleneck, row.fits, row.step_seconds, row.hours) == ("memory", False, None, None)
    assert "1,120 GB" in row.advice and "Use ZeRO stage 3" in row.advice
    resnet = Profile(1, 2, 1e8, batch=4096, flops_per_example=24e9, activation_bytes=4096 * 74e6)
    (row,) = predict(resnet, Scenario((8,), machine=machine))
    assert not row.fits and "activations overflow. Use at most 1,0" in row.advice
    assert predict(resnet, Scenario((8,), "strong", machine=machine))[0].fits


def test_launches_are_fewer_with_xla_and_calls_with_more_steps_at_once():
    small = Profile(
        0.1,
        0.2,
        1,
        flops_per_example=1e6,
        operations=1000,
        compiled_operations=100,
        call_seconds=0.001,
    )
    machine = find_machine("A100 on HDR")

    def step(**settings):
        return predict(small, Scenario((1,), machine=machine, **settings))[0].step_seconds

    assert step() == pytest.approx(0.005) and step(jit_compile=True) == pytest.approx(0.0014)
    assert step(steps_per_execution=100) == pytest.approx(0.00401)
    assert predict(small, Scenario((1,), network=NETWORK))[0].parts["launches"] == 0


def test_parameter_servers_are_their_links():
    """64 workers, 4 GB, four servers at 10 Gb/s: pulls take 51.2 s, pushes what backward leaves."""
    network = Network(Link(0, 1.25e9))
    row = one(Profile(0.1, 0.2, 4e9), network=network, servers=4)
    assert row.step_seconds == pytest.approx(0.3 + 51.2 + 51.2 - 0.2)
    assert row.bottleneck == "network"
    many = one(Profile(0.1, 0.2, 4e9), network=network, servers=64)
    assert many.step_seconds == pytest.approx(0.3 + 3.2 + 3.2 - 0.2)


def test_input_is_hidden_until_it_is_longer_than_the_step():
    hidden = one(Profile(0.1, 0.2, 1, input_seconds=0.29))
    assert hidden.step_seconds == pytest.approx(0.3, rel=0.01) and hidden.parts["input"] == 0
    assert one(Profile(0.1, 0.2, 1, input_seconds=0.5)).step_seconds == pytest.approx(0.5)


def test_known_machines_have_a_source_and_a_date():
    for machine in MACHINES.values():
        assert machine.source and machine.date and machine.peak_tflops > 1
        assert 0 < machine.attention < machine.efficiency < 1
    found = find_machine("64 H100 on 400 Gb/s")
    assert (found.count, found.name) == (64, "H100")
    rates = {
        "64 H100 on 400 Gb/s": 50e9,
        "64 H100, 8 a node, 8x400Gb/s": 400e9,
        "a100 on hdr": 25e9,
    }
    for text, rate in rates.items():
        assert find_machine(text).network.link.bandwidth_bytes_per_second == rate
    assert find_machine("a100 on hdr").network == NETWORKS["HDR"]
    assert find_machine("8x V100").count == 8 and find_machine("H100, 4 a node").ranks_per_node == 4
    own = find_machine("16 B300, 2500TFLOP/s, 288GB, 8TB/s memory, 900GB/s inside, 8 a node")
    assert (own.peak_tflops, own.memory_gb, own.memory_bytes_per_second) == (2500, 288, 8e12)
    assert own.node_bytes_per_second == 900e9


def test_rings_that_leave_a_node_share_its_network():
    machine = find_machine("64 H100, 8x400Gb/s")
    assert machine.find_link(8).bandwidth_bytes_per_second == 450e9
    assert machine.find_link(64).bandwidth_bytes_per_second == 400e9
    assert machine.find_link(8, 8).bandwidth_bytes_per_second == 50e9
    assert machine.find_link(16, 2).bandwidth_bytes_per_second == 200e9


def test_a_machine_computes_at_a_part_of_its_peak():
    profile = Profile(0.1, 0.2, 1, batch=100, flops_per_example=1e12)
    row = one(profile, machine=find_machine("A100 on HDR"), network=None, devices=(1,))
    assert row.step_seconds == pytest.approx(100e12 / (312e12 * 0.4))
    with pytest.raises(DistributedError, match="flops_per_example"):
        one(machine=find_machine("A100 on HDR"))


def test_profiles_travel_as_json(tmp_path):
    path = tmp_path / "profile.json"
    profile = Profile(0.1, 0.2, 5.0, "mine", 32, local=LOCAL, latency_seconds=5e-6)
    path.write_text(json.dumps({"profile": profile.to_dict(), "predictions": []}))
    assert read_profile(path) == profile
    for text, says in (
        ("[1]", "one JSON object"),
        ("{", "isn't JSON"),
        ("{}", "must have forward"),
        ('{"speed": 1}', "got 'speed'"),
    ):
        path.write_text(text)
        with pytest.raises(DistributedError, match=says):
            read_profile(path)


def test_two_local_workers_are_the_pair_and_more_share_the_cores():
    assert predict_local(LOCAL, 2) == pytest.approx(LOCAL.pair_seconds)
    four = predict_local(LOCAL, 4)
    compute, own = 2 * 0.019, 0.024 - 0.019 - 0.0025
    ring = 0.0008 + 3 * 0.0004 + 1.5 * 0.0013
    assert four == pytest.approx(CROWDED * (compute + 2 * (own + ring)))
    roomy = LocalCosts(64, *list(vars(LOCAL).values())[1:])
    assert predict_local(roomy, 4) < four
    times = [predict_local(LOCAL, workers) for workers in (2, 3, 4, 8, 16)]
    assert times == sorted(times)


@pytest.mark.parametrize("forward_share", [0.1, 0.3, 0.57, 0.9])
def test_a_step_that_only_costs_fixed_time_is_a_profile(forward_share):
    """A model so small that a quarter of its batch takes as long as the whole."""
    pair = {key: (1e-3, 1e-3) for key in ("both", "pair", "launch", "short", "reduce")}
    names = "input_seconds checkpoint_seconds flops activation_bytes spread call_seconds"
    rest = dict.fromkeys(names.split(), 0.1)
    rest |= {"operations": 50, "compiled_operations": 9}
    for step in (0.0031, 0.00057, 0.0083, 0.00119, 0.0027, 0.00703):
        found = {
            **pair,
            **rest,
            "alone": (step, step),
            "forward_share": forward_share,
            "fixed_share": 1.0,
            "parameters": 10,
        }
        profile = make_profile("tiny", 8, found, found)
        assert profile.fixed_seconds == pytest.approx(step) == profile.compute_seconds


def test_a_real_calibration_knows_the_model_and_predicts_its_workers():
    """Nothing is said about speed here: `make bench` compares predictions and measurements."""
    from utils.calibrate import calibrate, check_locally
    from utils.models import build_model

    launcher = make_launcher()
    try:
        brief = partial(build_briefly, build_model, "mlp")
        profile = calibrate(brief, 32, name="mlp", launcher=launcher)
        (check,) = check_locally("mlp", profile, (2,), launcher=launcher)
    finally:
        launcher.close()
    assert profile.gradient_bytes == 4 * 101_770 and profile.parameters == 101_770
    assert profile.flops_per_example == pytest.approx(6 * 101_770, rel=0.02)
    assert profile.activation_bytes >= 32 * (784 + 128 + 10) * 4
    assert min(profile.forward_seconds, profile.compute_seconds, profile.call_seconds) > 0
    assert min(profile.checkpoint_seconds, profile.input_seconds) > 0
    assert profile.bandwidth_bytes_per_second > 0
    assert 0 < profile.compiled_operations < profile.operations < 500
    assert read_profile(profile.to_dict()) == profile
    assert check.low < check.predicted < check.high and check.measured > 0
    assert predict(profile, Scenario(devices=(1, 8)))[1].efficiency < 1
