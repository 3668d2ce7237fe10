"""Lab 13, Precision and memory: what it runs, and how it is judged."""
