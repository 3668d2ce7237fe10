"""Lab 12, Pipelines and shards: its code, and its judge."""
