"""Lab 16, Which way to cut: its code, and its judge."""
