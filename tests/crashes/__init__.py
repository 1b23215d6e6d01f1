"""Every moment at which the power can go, and everything that it can leave behind: ``python -m tests.crashes``."""
