"""Lab 13, Precision and memory: its code, and its judge.

- `failing_networks`: networks in float16 that fail at a known place, drawn for lab 13, each with a
  trap
- `metered_blocks`: blocks of lab 13 whose tensors a meter counts as long as something holds them
"""
