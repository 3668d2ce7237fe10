"""Lab 08, Training on several workers: its code, and its judge."""
