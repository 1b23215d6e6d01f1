"""Who makes the trouble: faults, each with the proof that it bit, and when they come and go."""
