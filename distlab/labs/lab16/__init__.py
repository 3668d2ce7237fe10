"""Lab 16, Which way to cut: what it runs, and how it is judged."""
