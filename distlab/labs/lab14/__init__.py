"""Lab 14, Plan a run: its code, and its judge."""
