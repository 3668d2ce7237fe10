"""Lab 11, A pipeline that keeps up: its code, and its judge."""
