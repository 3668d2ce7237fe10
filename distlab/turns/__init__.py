"""The *Your turn* answers of the lessons and their mistakes, `lessonNN.py` for each.

A lesson imports its module in one line (`from distlab.turns import lesson05 as turns`)
and calls `take` of each `Turn` in the cell after the one to be written in.

- `turn`: *Your turn*: the learner writes a line or two of a lesson, and the next cell checks it at
  once
"""
