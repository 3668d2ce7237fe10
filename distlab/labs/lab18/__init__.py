"""Lab 18, Many small jobs: its code, and its judge.

- `shard_runs`: workers that claim shards (some of them die), and their files afterwards
"""
