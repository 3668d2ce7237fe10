"""Lab 03, Keras under a strategy: what it runs, and how it is judged.

- `digits`: lab 03: the digits that its exercises train on, and the run of exercise 5
"""
