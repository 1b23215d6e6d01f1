"""What goes wrong, by kind. Each trouble is a coroutine; how often each comes is its weight."""
