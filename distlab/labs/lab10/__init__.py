"""Lab 10, Parameter servers: what it runs, and how it is judged."""
