"""State machines on a group's log: applied by every node in the log's order, checkpointed as records of that log."""
