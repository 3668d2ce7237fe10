"""Lab 08, Training on several workers: what it runs, and how it is judged."""
