"""Lab 05, Loss scaling: its code, and its judge.

- `reports`: what is measured of a step with a known bug in its loss
- `step`: lab 05: one step of plain gradient descent on four real replicas, and what a loss makes
  of it
"""
