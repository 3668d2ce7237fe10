"""Lab 02, What a strategy does: what it runs, and how it is judged."""
