"""Everything that takes long and proves something, in slices whose results are kept: ``make proof``."""
