"""Lab 04, The custom training loop: its code, and its judge.

- `draws`: lab 04: what its exercises train on, drawn from a seed
- `folders`: folders that a run is resumed from: moved in between, as on another machine
"""
