"""Lab 18, Many small jobs: what it runs, and how it is judged.

- `shard_runs`: workers that claim shards, of which some die, and what their files say afterwards
"""
