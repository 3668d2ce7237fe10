"""Lab 09, Fault tolerance: what it runs, and how it is judged."""
