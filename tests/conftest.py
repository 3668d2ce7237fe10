"""One quiet TensorFlow for each test process, split into four logical devices.

It is split before the first test, since a test that uses TensorFlow without asking
for the fixture would start it with one device for all that follow.
"""

import signal

import pytest

from utils.environment import quiet_tensorflow


def pytest_configure() -> None:
    """Heed interrupts: a job in a shell's background ignores them, and so would its children."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def tf():
    """TensorFlow, imported once and split into four logical devices."""
    with quiet_tensorflow():
        import tensorflow
    from utils.devices import use_logical_devices

    use_logical_devices(4)
    return tensorflow
