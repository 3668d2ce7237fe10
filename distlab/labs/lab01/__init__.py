"""Lab 01, Batches and words: what it runs, and how it is judged."""
