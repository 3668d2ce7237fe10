"""Lab 07, Cluster doctor: what it runs, and how it is judged."""
