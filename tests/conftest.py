"""One quiet TensorFlow for each test process, split into four logical devices."""

import pytest

from utils.environment import quiet_tensorflow


@pytest.fixture(scope="session")
def tf():
    """TensorFlow, imported once and split into four logical devices."""
    with quiet_tensorflow():
        import tensorflow
    from utils.devices import use_logical_devices

    use_logical_devices(4)
    return tensorflow
