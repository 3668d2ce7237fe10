"""Lab 18, many small jobs: shards that survive kills, trials stopped early, a checked merge."""

import hashlib
import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from distlab.exercises.exercise import Exercise, each
from distlab.exercises.folder import Folder
from distlab.exercises.refusing import read_array, refuse, require_list, require_parts
from distlab.labs import ANSWERS
from distlab.labs.lab18.shard_runs import try_work

ABSENT = ANSWERS


WORK = Exercise(
    lab="lab18",
    name="work",
    function="work",
    examples=(("together", 1), ("killed", 2), ("cut", 3)),
    mistakes={
        "no-claim": "workers predicted the same shards. Claim a shard in one step that only one "
        "worker can succeed in, and look again whether it's done once you have it",
        "claim-outlives-its-worker": "the shard of a killed worker is missing. Its claim must go "
        "when it dies, as a lock (fcntl.flock) does",
        "waits-for-the-dead": "after 8 s a worker was still waiting for the shard of a dead one. A "
        "claim must say whether its owner still lives, or be a lock that dies with it",
        "half-file": "a worker died while it wrote, and its half file was taken for a finished "
        "one. Write under another name, and rename",
        "looked-once": "a worker returned while another one still held a shard, and that one was "
        "killed. Continue until every output is there",
    },
    hint="is every shard's output there, with all its rows in order, no matter which worker was "
    "killed?",
    run=each(try_work),
    shows_case=True,
)


# ---- exercise 2: successive halving


def draw_losses(seed: int, trials: int, first: int, rungs: int) -> list[list[float]]:
    """Return losses [trial][epoch], over `rungs` rungs that double; one trial diverges to nan.

    With `first` above 1 it's trial 0, where a plain sort would leave it.
    """
    rng = np.random.default_rng(seed)
    epochs = first * 2 ** (rungs - 1)
    falls = rng.uniform(0.05, 1, (trials, 1)) * np.arange(1, epochs + 1)
    losses = rng.uniform(0.3, 1, (trials, 1)) + np.exp(-falls)
    losses += rng.uniform(-0.15, 0.15, (trials, epochs))  # a trial may be lucky for an epoch
    losses[:, -1] += 1  # so that stopped trials were better when they stopped than the winner ends
    losses[:, -2] = 0.1 - losses[:, -1] / 20  # very low in the last but one, the worst lowest
    losses[0 if first > 1 else rng.integers(trials), first - 1 :] = np.nan
    cut = np.argsort(losses[:, first - 1])[trials // 2 - 1 : trials // 2 + 1]
    losses[cut, first - 1] = losses[cut[0], first - 1]  # equal: the lower number continues
    stopped = np.nanargmax(losses[:, first - 1])  # it goes in the first rung, and was good before
    losses[stopped, -1] = 0.02
    if first > 1:
        losses[stopped, first - 2] = 0.01
    return losses.round(3).tolist()


def try_halve(halve: Callable[..., Any], *case: int) -> Any:
    """Return what `halve` makes of the table that `draw_losses(*case)` gives."""
    _, _, first, _ = case
    return halve(draw_losses(*case), first)


HALVE = Exercise(
    lab="lab18",
    name="halve",
    function="halve",
    examples=((247, 8, 1, 4), (12, 5, 2, 4), (50, 11, 1, 3)),  # nan sorts alike in all Pythons
    mistakes={
        "keeps-the-worst": "a low loss is good: the half with the lower losses continues",
        "keeps-the-highest": "the half with the higher losses continued: sort from low to high",
        "best-ever": "the winner is the one with the lowest last loss, not with the lowest ever",
        "nan-is-best": "nan is the worst loss of all, though np.argmin takes it for the smallest",
        "ties-last": "of two equal losses the lower trial number is better",
        "rung-before": "the winner has the lowest *last* loss: sort once more at the end",
        "own-last": "only trials that ran to the end can win, however good a stopped one was",
        "sorts-nan": "nan is neither smaller nor larger than any number, so sorting leaves it "
        "anywhere: give it the last place",
        "one-epoch-late": "after `first` epochs, the loss is at [first - 1]: lists count from 0",
        "rounded-up": "of 7 trials 3 continue, not 4: round down, but keep at least one",
        "half-of-all": "half of those that are left continue, not half of all trials each time",
        "same-step": "the epochs double from rung to rung: first, first x 2, first x 4, …",
        "loss-told": "this is the winner's loss: return its number",
        "epochs-added": "these are the rungs' epochs added up: epoch 4 means 4 epochs in all",
        "end-of-the-table": "you compared losses of the table's last epoch: when a rung ends, only "
        "the loss after its last epoch is known",
        "mean-so-far": "compare the losses after the rung's last epoch, not their means so far",
        "best-so-far": "compare the losses after the same epoch, not each trial's lowest so far",
        "stopped-ones-too": "the winner is one of those that ran to the end. A stopped trial has "
        "a loss in the table for epochs that it never ran",
    },
    hint="after `first` epochs, then twice as many, …: who is left, and how far did others get?",
    run=each(try_halve),
    plain=True,
)


# ---- exercise 3: a merge that finds damage


def draw_parts(seed: int, count: int) -> tuple[list[np.ndarray], list[int]]:
    """Return the values of each part, in the order of their rows, and which three are damaged."""
    rng = np.random.default_rng(seed)
    parts = [rng.uniform(-9, 9, rng.integers(3, 7)).round(3) for _ in range(count)]
    return parts, [int(k) for k in rng.choice(count - 1, 3, replace=False)]


def write_parts(folder: Path, seed: int, count: int) -> None:
    """Write the parts and their manifest. One has a wrong byte, one is cut, one is missing."""
    parts, (wrong, cut, gone) = draw_parts(seed, count)
    notes, first = [], 0
    for number, values in enumerate(parts):
        name, file = f"part-{number}.npy", io.BytesIO()
        np.save(file, values)
        body = bytearray(file.getvalue())
        notes.append(
            {
                "file": name,
                "first_row": first,
                "rows": len(values),
                "sha256": hashlib.sha256(body).hexdigest(),
            }
        )
        first += len(values)
        body[-2] ^= number == wrong
        if number != gone:
            (folder / name).write_bytes(body[:-8] if number == cut else body)
    np.random.default_rng(seed).shuffle(notes)
    (folder / "manifest.json").write_text(json.dumps({"rows": first, "parts": notes}))


def try_merge(merge: Callable[..., Any], seed: int, count: int) -> dict[str, Any]:
    """Return what `merge` makes of a folder with parts, three of them damaged."""
    with tempfile.TemporaryDirectory() as root:
        write_parts(Path(root), seed, count)
        try:
            found = merge(Folder(root))
        except FileNotFoundError as error:
            name = Path(str(error.filename)).name
            if not name.startswith("part-") or Path(root, name).exists():
                raise
            raise refuse(
                f"merge raised FileNotFoundError for {name}. A part whose file is missing is "
                "damaged: name it, leave nan in its rows, and continue with the others."
            ) from error
    wanted = ("the values", "the names of damaged files")
    values, damaged = require_parts(found, "merge", *wanted)
    values = read_array(values, "merge", "an array of values")
    damaged = require_list(damaged, "merge, as damaged files,", "a list of names")
    filled = np.nan_to_num(values.astype(float), nan=-1000.0)  # nan equals nothing
    return {"values": filled, "damaged": sorted(map(str, damaged))}


MERGE = Exercise(
    lab="lab18",
    name="merge",
    function="merge",
    plain=True,
    examples=((1, 12), (2, 11)),
    mistakes={
        "rows-only": "a wrong byte doesn't change the number of rows: compare the SHA-256",
        "values-digested": "no digest agrees with the manifest's: it is the SHA-256 of the file's "
        "bytes, header included, and not of the values in it",
        "shifted": "the rows of a damaged part are nan, and those after it stay at their place",
        "by-name": "a part's place is its first_row, not where its name is in the alphabet",
        "as-listed": "the manifest's parts are in no order: a part's place is its first_row",
        "intact-ones": "these are the intact files: return the names of the damaged ones",
        "zeros": "a row that is lost is nan: zero looks like a value",
        "gone-ones-not-named": "a file that is missing is damaged, too: name it",
    },
    hint="for each part of the manifest: is the file there, and are its bytes the written "
    "ones? -1000 stands for nan here",
    run=each(try_merge),
)
