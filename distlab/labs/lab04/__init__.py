"""Lab 04, The custom training loop: what it runs, and how it is judged.

- `draws`: lab 04: what its exercises train on, drawn from a seed
- `folders`: folders that a run is resumed from: moved in between, as on another machine
"""
