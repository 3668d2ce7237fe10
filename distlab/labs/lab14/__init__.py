"""Lab 14, Plan a run: what it runs, and how it is judged."""
