"""Lab 05, Loss scaling: what it runs, and how it is judged."""
