"""Lab 06, Ring all-reduce: its code, and its judge."""
