"""Makes a sequence of operations that shows a difference as short as it can."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from tests.etcd.operations import Operation

Shows = Callable[[Sequence[Operation]], bool]


def shrunk(operations: Sequence[Operation], shows: Shows, seconds: float) -> list[Operation]:
    """Takes out ever smaller pieces that it does without (delta debugging), for about so long."""
    left, piece = list(operations), max(1, len(operations) // 2)
    deadline_s = time.monotonic() + seconds
    while time.monotonic() < deadline_s:
        begin, went = 0, False
        while begin < len(left) and time.monotonic() < deadline_s:
            shorter = left[:begin] + left[begin + piece :]
            if shows(shorter):
                left, went = shorter, True
            else:
                begin += piece
        if piece == 1 and not went:
            return left
        piece = max(1, piece // 2)
    return left
