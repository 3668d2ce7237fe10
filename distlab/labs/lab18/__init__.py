"""Lab 18, Many small jobs: what it runs, and how it is judged."""
