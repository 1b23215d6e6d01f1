"""What a run looked like: one HTML page that needs nothing beside it, and an index of all runs."""
