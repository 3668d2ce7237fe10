"""Lab 01, Batches and words: its code, and its judge."""
