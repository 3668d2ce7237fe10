"""Strategy "tpu": one plain sentence where no TPU is; the three calls where one is."""

import socket

import pytest

from utils.errors import DistributedError
from utils.strategies import check_strategy, make_strategy


@pytest.fixture
def nowhere(monkeypatch):
    """No TPU is named; yields a function that names one."""
    from utils.devices import TPU_VARIABLES

    for name in TPU_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return lambda address: monkeypatch.setenv("TPU_NAME", address)


def has_tpu():
    from utils.devices import tpu_address

    return tpu_address() is not None


def test_no_tpu_is_said_in_one_plain_sentence(tf, nowhere):
    from utils.devices import tpu_address

    if tf.config.list_physical_devices("TPU"):
        pytest.skip("a TPU is here")
    assert tpu_address() is None
    with pytest.raises(DistributedError, match="needs a TPU") as refused:
        make_strategy("tpu")
    assert "\n" not in str(refused.value) and "TPU_NAME" in str(refused.value)


def test_a_named_tpu_that_does_not_answer_is_said_soon(tf, nowhere):
    """TensorFlow's own call waits for minutes."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"grpc://127.0.0.1:{taken.getsockname()[1]}"  # bound, and nobody listens
        nowhere(address)
        with pytest.raises(DistributedError, match="found no TPU at") as refused:
            make_strategy("tpu")
    assert address in str(refused.value) and "refused" in str(refused.value)


def test_a_local_tpu_that_is_none_gives_tensorflows_reason(tf, nowhere):
    if tf.config.list_physical_devices("TPU"):
        pytest.skip("a TPU is here")
    nowhere("local")
    before = tf.config.list_logical_devices()
    with pytest.raises(DistributedError, match="TPUs not found in the cluster") as refused:
        make_strategy("tpu")
    assert "\n" not in str(refused.value)
    assert tf.config.list_logical_devices() == before
    assert float(tf.function(lambda x: x * 2)(tf.constant(2.0))) == 4.0


def test_replicas_are_the_cores_and_nobody_chooses_them():
    assert check_strategy("tpu") is None


def test_a_topology_in_numbers(tf):
    from utils.devices import describe_topology

    places = [[[x, y, 0, core] for y in (0, 1) for core in (0, 1)] for x in (0, 1)]
    topology = tf.tpu.experimental.Topology(mesh_shape=[2, 2, 1, 2], device_coordinates=places)
    numbers = describe_topology(topology)
    assert numbers["mesh"] == (2, 2, 1, 2) and numbers["cores"] == 8
    assert (numbers["hosts"], numbers["cores_per_host"]) == (2, 4)
    assert numbers["coordinates"][1][2] == (1, 1, 0, 0)


def test_the_course_job_trains_on_a_tpu(tf):
    if not has_tpu():
        pytest.skip("needs a TPU")
    from utils.training import train

    report = train(strategy="tpu", max_examples=512, epochs=2)
    assert report.replicas >= 1 and report.loss[1] < report.loss[0]
