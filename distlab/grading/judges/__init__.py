"""The references of the labs' exercises: what is right for any numbers, one module for each lab.

Neither students nor the sandbox have them. A whole exercise, in the five places that it
takes. Its object, `distlab/exercises/lab90.py`:

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

An answer that cannot be called with a case as it stands gets a `run`, say
`run=each(try_share)` with `try_share(answer, *case)`, which returns plain data: numbers,
words, arrays, lists, dictionaries. What is compared may be worked out of that by a `read`.

Its reference, `distlab/grading/judges/lab90.py`:

    from distlab.exercises import lab90
    from distlab.grading.judging import Judge, LabRules

    RULES = LabRules(cell_seconds=10, submission_seconds=30)


    def expect_share(worker: int, workers: int, examples: int, way: str = "right") -> list[int]:
        return {
            "right": list(range(worker, examples, workers)),
            "in-blocks": [k for k in range(examples) if k * workers // examples == worker],
            "counted-from-one": list(range(worker + 1, examples, workers)),
        }[way]


    SHARE = Judge(lab90.SHARE, expect_share)

What its visible check compares with, `distlab/exercises/worked/lab90.json`, written by
`python -m distlab.grading.judges lab90` and compared by tests/course/test_exercises.py.

Its graded cell in `solutions/src/lab90_slug.py`:

    ### BEGIN INPUTS
    rng = np.random.default_rng([SEED, 1])
    share_cases = [(k, 3, int(rng.integers(9, 40))) for k in range(3)]
    ### END INPUTS
    got_shares = lab90.SHARE.observe(read_share, share_cases)
    lab90.SHARE.check(read_share)
    ### BEGIN HIDDEN TESTS
    from distlab.grading.judges import lab90 as judges

    judges.SHARE.judge(share_cases, got_shares)
    ### END HIDDEN TESTS

And its answers in `tests/answers/lab90.py`: `RIGHT` has a list of three or more texts for each
exercise, `WRONG` a dictionary from the names of its mistakes ("" for one that has none) to a text.
"""
