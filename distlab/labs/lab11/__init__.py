"""Lab 11, A pipeline that keeps up: what it runs, and how it is judged."""
