"""Lab 15, Capstone: what it runs, and how it is judged."""
