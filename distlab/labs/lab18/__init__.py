"""Lab 18, Many small jobs: its code, and its judge.

- `shard_runs`: workers that claim shards, of which some die, and what their files say afterwards
"""
