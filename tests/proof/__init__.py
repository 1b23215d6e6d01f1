"""Everything that takes long and proves something, in slices that are done once for each commit: ``make proof``."""
