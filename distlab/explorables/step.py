"""A training step on one time axis: buckets that fill, an all-reduce that hides or doesn't."""

from distlab.errors import CourseError
from distlab.explorables.explorable import Explorable
from distlab.figures import Picture, timeline
from utils.measure import count
from utils.simulate.collective import Link
from utils.simulate.step import BUCKET_BYTES, Network, StepRun, StepWork, simulate_step

RANGES = {  # of the sliders: bytes of all gradients, bytes/s, seconds, bytes
    "gradients": (2e7, 4e8),
    "bandwidth": (1e8, 1e11),
    "latency": (1e-6, 1e-3),
    "bucket": (2e6, 4e8),
}
MAX_WORKERS = 256


def step_time_line(
    work: StepWork,
    workers: int,
    link: Link,
    *,
    bucket_bytes: float = BUCKET_BYTES,
    overlap: bool = True,
) -> Explorable:
    """Show one step of `workers` devices on `link`: compute, buckets, network, and who waits.

    The seconds come from `simulate_step`. Raises CourseError for sizes that the sliders do
    not reach (RANGES; workers are a power of two up to 256), and what `simulate_step` raises.
    """
    options = {
        "bucket": bucket_bytes,
        "gradients": work.gradient_bytes,
        "bandwidth": link.bandwidth_bytes_per_second,
        "latency": link.latency_seconds,
    }
    if workers not in (powers := [2**k for k in range(MAX_WORKERS.bit_length())]):
        raise CourseError(f"workers must be one of {', '.join(map(str, powers))}, got {workers}.")
    for name, (low, high) in RANGES.items():
        if not low <= options[name] <= high:
            raise CourseError(f"{name} must be from {low:g} to {high:g}, got {options[name]:g}.")
    data = {
        "label": "One training step",
        "forward": work.forward_seconds,
        "backward": work.backward_seconds,
        "update": work.update_seconds,
    }
    run = simulate_step(work, workers, Network(link), bucket_bytes=bucket_bytes, overlap=overlap)
    more = {"workersLog": powers.index(workers), "speed": 1, "overlap": overlap, "time": 1}
    return Explorable("step", data, options | more, _draw_still(run))


def _draw_still(run: StepRun) -> Picture:
    """Draw when one device computes and when its buckets travel, in milliseconds."""
    rows = [(lane, 1e3 * a, 1e3 * b, text, kind) for lane, a, b, text, kind in run.rows()]
    buckets = count(len(run.starts), "bucket")
    title = f"Gradients in {buckets}: the step takes {1e3 * run.step_seconds:.1f} ms"
    return timeline(rows, title=title, unit="ms")
