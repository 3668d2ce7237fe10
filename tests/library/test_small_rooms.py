"""environment, measure and events."""

import json
import os
import random
import subprocess
import sys
import threading

import numpy as np
import pytest

from utils.environment import memory_variables, quiet_tensorflow, set_seeds, versions
from utils.events import EventWriter, make_event, read_events
from utils.measure import (
    Stopwatch,
    array_bytes,
    format_bytes,
    images_per_second,
    peak_memory_bytes,
    time_calls,
)


def run_python(code: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)


def test_tensorflow_starts_without_a_word():
    done = run_python(
        "from utils.environment import quiet_tensorflow\n"
        "with quiet_tensorflow():\n    import tensorflow as tf\n"
        "tf.function(lambda: tf.ones([2]))()\n"
        "import os; print(os.environ.get('TF_ENABLE_ONEDNN_OPTS'))"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "None\n", "")


def test_an_error_in_the_quiet_block_is_not_lost():
    done = run_python(
        "import os\nfrom utils.environment import quiet_tensorflow\n"
        "with quiet_tensorflow():\n    os.write(2, b'from C++')\n    raise ImportError('no AVX')"
    )
    assert done.returncode == 1 and "from C++" in done.stderr and "no AVX" in done.stderr


def test_standard_error_comes_back_after_the_quiet_block(capfd):
    with quiet_tensorflow():
        os.write(2, b"hidden")
    os.write(2, b"shown")
    assert capfd.readouterr().err == "shown"


ALLOCATE = """import os, resource
import numpy as np
if MEANT:
    from utils.environment import quiet_tensorflow
    with quiet_tensorflow():
        pass
[np.ones(400_000) for _ in range(20)]
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    [np.ones(400_000) for _ in range(20)]  # 64 MB, in pieces of 3.2 MB
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no glibc")
def test_memory_of_a_step_is_used_again_by_the_next(monkeypatch):
    for name in memory_variables():
        monkeypatch.delenv(name, raising=False)
    anew = int(run_python(ALLOCATE.replace("MEANT", "False")).stdout)
    again = int(run_python(ALLOCATE.replace("MEANT", "True")).stdout)
    for name, size in memory_variables().items():
        monkeypatch.setenv(name, size)
    from_outside = int(run_python(ALLOCATE.replace("MEANT", "False")).stdout)
    assert anew > 20_000 and again < 2_000 and from_outside < 2_000
    assert memory_variables() == {}


def test_seeds_repeat_what_python_numpy_and_keras_draw(tf):
    import keras

    def draw():
        return random.random(), np.random.rand(), float(keras.random.uniform([]))

    set_seeds(7)
    first = draw()
    assert draw() != first
    set_seeds(7)
    assert draw() == first


def test_versions_name_what_is_missing():
    found = versions()
    assert found["tensorflow"].startswith("2.") and found["keras"].startswith("3.")
    assert found["python"].count(".") == 2


def test_timings_count_what_was_called():
    calls = []
    timing = time_calls(lambda: calls.append(1), repeats=4, warm_up=2)
    assert len(calls) == 6 and len(timing.seconds) == 4
    assert timing.best_seconds <= timing.median_seconds <= max(timing.seconds)
    with pytest.raises(ValueError, match="repeats must be a whole number"):
        time_calls(print, repeats=0)
    with Stopwatch() as watch:
        sum(range(1000))
    assert watch.seconds > 0


def test_bytes_and_rates(tf):
    assert array_bytes([np.zeros((3, 4), "float64"), tf.zeros([5], tf.float16)]) == 96 + 10
    assert array_bytes([tf.Variable(tf.zeros([2, 2], tf.bfloat16))]) == 8
    assert [format_bytes(n) for n in (0, 512, 65536, 3 * 2**20, 5 * 2**40)] == [
        "0 B",
        "512 B",
        "64.0 KiB",
        "3.0 MiB",
        "5.0 TiB",
    ]
    assert images_per_second(100, 0.5) == 200
    before = peak_memory_bytes()
    block = np.ones(80 * 2**20, dtype=np.uint8)
    assert peak_memory_bytes() - before > 10 * 2**20 or before > 500 * 2**20
    del block


def test_events_from_several_threads_stay_whole_lines(tmp_path):
    path = tmp_path / "deep" / "events.jsonl"
    with EventWriter(path) as writer:

        def write(thread):
            for step in range(200):
                writer(make_event("step", step=step, thread=thread, loss=0.5))

        threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        writer(make_event("end"))
    events = list(read_events(path))
    assert len(events) == 801 and events[-1]["event"] == "end"
    for number in range(4):
        assert [e["step"] for e in events if e.get("thread") == number] == list(range(200))


def test_a_line_half_written_is_left_and_a_broken_one_is_named(tmp_path):
    path = tmp_path / "events"
    path.write_text(json.dumps(make_event("a")) + "\n" + '{"event": "b"')
    assert [e["event"] for e in read_events(path)] == ["a"]
    path.write_text('{"event": "a"}\nrubbish\n')
    with pytest.raises(ValueError, match="line 2"):
        list(read_events(path))
