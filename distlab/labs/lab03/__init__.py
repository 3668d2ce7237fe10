"""Lab 03, Keras under a strategy: what it runs, and how it is judged."""
