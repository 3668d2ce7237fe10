"""Lab 15, Capstone: its code, and its judge.

- `program_runs`: runs a learner's whole program on real workers, and notes what can be seen of it
  from outside
- `saved_models`: a submitted SavedModel: packed into one file, read as plain data, asked
  for masks
- `shards`: the scenes of lab 15 in shards: written to disk, and given out to workers
"""
