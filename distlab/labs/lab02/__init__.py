"""Lab 02, What a strategy does: its code, and its judge."""
