"""Lab 04, The custom training loop: what it runs, and how it is judged."""
