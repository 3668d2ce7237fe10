"""Lab 03, Keras under a strategy: its code, and its judge.

- `digits`: lab 03: the digits that its exercises train on, and the run of exercise 5
"""
