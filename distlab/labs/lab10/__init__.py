"""Lab 10, Parameter servers: its code, and its judge."""
