"""The conveyor of several workers: which examples reach whom, which fall, and which twice."""

import numpy as np

from distlab.explorables.explorable import Explorable
from distlab.figures import shares
from utils.checks import check_choice, check_count
from utils.input_pipeline.sharding import shard_examples

EXAMPLES, MAX_WORKERS, MAX_FILES, BATCH = 32, 4, 8, 4
POLICIES = ("FILE", "DATA", "OFF", "LATE")


def sharding_belt(policy: str = "FILE", files: int = 4, workers: int = 2) -> Explorable:
    """Show 32 examples fall from their files to the workers that read them under `policy`.

    `policy` is FILE, DATA, OFF, or LATE: shuffle in its own order, then take every
    `workers`-th. Raises InputError for another policy and sizes that
    the sliders don't reach, and what `shard_examples` raises.
    """
    check_choice("policy", policy, POLICIES)
    check_count("files", files, 1, MAX_FILES)
    check_count("workers", workers, 1, MAX_WORKERS)
    rng = np.random.default_rng(0)
    orders = [rng.permutation(EXAMPLES).tolist() for _ in range(MAX_WORKERS)]
    data = {"label": "Who trains on which example", "examples": EXAMPLES, "orders": orders}
    options = {"policy": policy, "files": files, "workers": workers, "batch": BATCH, "time": 1}
    parts = [part.tolist() for part in np.array_split(np.arange(EXAMPLES), files)]
    views = shard_examples(parts, workers, policy, BATCH, orders)
    title = f"{policy}: {files} files, {workers} workers, batches of {BATCH}"
    return Explorable("sharding", data, options, shares(views, EXAMPLES, title=title))
