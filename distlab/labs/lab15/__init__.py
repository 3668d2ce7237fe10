"""Lab 15, Capstone: what it runs, and how it is judged.

- `program_runs`: runs a learner's whole program on real workers, and notes what can be seen of it
  from outside
- `saved_models`: a SavedModel as it is handed in: packed into one file, read as plain data, asked
  for masks
- `shards`: the scenes of lab 15 in shards: written to disk, and given out to workers
"""
