"""What the labs share: the `Exercise` object, comparing, and what is said to learners.

A lab's `distlab/labs/labNN/exercise.py` has one object for each exercise:

    from distlab.exercises.exercise import Exercise

    SHARE = Exercise(
        lab="lab90",
        name="share",
        function="read_share",
        examples=((0, 2, 5), (1, 3, 9)),
        mistakes={
            "in-blocks": "each worker got a block of neighbors: deal the examples out one by one",
            "counted-from-one": "workers are numbered from 0, and so are examples",
        },
        hint="worker k of W reads k, k + W, k + 2 W, …",
    )

`SHARE.check(read_share)` tries a learner's function on the examples and compares with
the lab's `worked.json`. An answer that cannot be called with a case as it stands gets a `run`:
`run=each(try_share)` with `try_share(answer, *case)`, which returns plain data (numbers,
words, arrays, lists, dictionaries), and is observed by `SHARE.observe(read_share, cases)`.

The teacher's copy shows the rest in `distlab/grading/judging.py`: the reference that judges
other numbers, the graded cell, the answers that test both.
"""
