"""Lab 06, Ring all-reduce: what it runs, and how it is judged."""
