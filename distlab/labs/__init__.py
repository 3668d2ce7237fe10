"""The labs, one folder each: its code, and its judge.

The other home of a lab is its text with the solution, `solutions/src/labNN_slug.py`. Its folder
`labNN` here has `exercise.py`, one `Exercise` object for each exercise and what the lab hands its
learners; `judge.py`, the references, which a release and the sandbox leave out; `worked.json`, what
the visible checks compare with; and modules that only this lab uses.
"""

# of the library: what holds an answer to an exercise of most labs; answers don't have it
ANSWERS = (
    "distlab.lessons",
    "utils.simulate",
    "utils.calibrate",
    "utils.parallel",
    "utils.training",
)
# the modules of `utils.collectives` that hold an all-reduce, or what it costs
COLLECTIVES = tuple(
    f"utils.collectives.{name}"
    for name in (
        "choice fit hierarchical naive processes recursive_doubling replica_values ring tree"
    ).split()
)
