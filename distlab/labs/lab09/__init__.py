"""Lab 09, Fault tolerance: its code, and its judge."""
