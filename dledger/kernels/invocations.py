"""When the append of a value was invoked."""

from __future__ import annotations

import numpy as np

from dledger.kernels.history import Column

BEGINNING = np.iinfo(np.int64).min


class Invocations:
    """Of appends of the values ``low`` … ``high``, exclusive, which do not overlap."""

    def __init__(self, low: Column, high: Column, at_ns: Column) -> None:
        order = np.argsort(low, kind="stable")
        self._low, self._high, self._at_ns = low[order], high[order], at_ns[order]

    def of(self, value: Column) -> Column:
        """Of values that none of them appended, the beginning of time."""
        if not len(self._low):
            return np.full(len(value), BEGINNING)
        place = np.searchsorted(self._low, value, side="right") - 1
        is_there = (place >= 0) & (value < self._high[place])
        return np.where(is_there, self._at_ns[place], BEGINNING)
