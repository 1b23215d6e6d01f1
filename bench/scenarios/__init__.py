"""What happens to our own figures as things grow, fail or rest. Each is a command of ``python -m bench``."""
