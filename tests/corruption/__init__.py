"""Every byte that a node stores, damaged by itself, and what became of it: ``python -m tests.corruption``."""
