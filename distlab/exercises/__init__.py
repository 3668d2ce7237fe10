"""Code that the labs share: the `Exercise` object, comparing, and feedback for learners.

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
the lab's `worked.json`. An answer that can't be called with a case as it stands gets a `run`:
`run=each(try_share)` with `try_share(answer, *case)`, which returns plain data (numbers,
words, arrays, lists, dictionaries), and is observed by `SHARE.observe(read_share, cases)`.

The teacher's copy shows the rest in `distlab/grading/judging.py`: the reference that judges
other numbers, the graded cell, the answers that test both.

- `answer_pictures`: a learner's own answer as a picture, right or wrong, under its check in
  JupyterLab
- `closure_events`: the actions of lab 10's closures, in order: they read the parameters, and apply
  an update later
- `comparing`: whether two answers agree, and how they are shown: plain data, numbers within a
  tolerance
- `drawn_batches`: batches that the workers of parameter servers draw one by one
- `feeding`: gives the workers of a run their own data when they ask for it
- `feedback`: a check's message in JupyterLab: a moment for a correct answer, and a first look for a
  wrong one
- `folder`: a folder that an answer reads, whose files travel when a class is graded
- `model_maker`: makes the model of a hand-written loop, whose weights show how the loop uses it
- `predict`: guess first, then look: for a lesson's predict cells
- `refusing`: messages for wrong answers, and reading what a function returned
- `ring_trace`: a ring all-reduce as an answer ran it, and the first message that isn't what was
  due
- `saves`: which checkpoints a run writes, seen from outside: by the names of their files
- `schedule_trace`: a pipeline schedule as an answer gave it, and the first operation that isn't as
  it should be
- `slips`: names the slips that any function can have, in its form and in its numbers
- `softmax`: softmax regression in NumPy: the data, first weights and slopes that labs train with
- `traveling`: a learner's functions as bytes, which only workers unpack
- `watching`: watches an answer that runs in a notebook: that it ends, and what it calls
- `worker_runs`: the labs' clusters of real workers, and their results as plain data
"""
