"""Lab 12, Pipelines and shards: what it runs, and how it is judged."""
