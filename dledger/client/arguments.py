"""What a caller gives, checked before anything is queued: what cannot be served is refused at the call."""

from __future__ import annotations

from dledger.errors import InvalidRequest
from dledger.types import MAX_INDEX, Consistency

MAX_PRIORITY = (1 << 32) - 1
"""Of a preferred leader."""
MAX_TIMEOUT_MS = 366 * 24 * 3_600_000
"""A year: beyond it clocks and gRPC begin to differ on what is meant."""


def check_index(index: object) -> None:
    """Raises UNEXPECTED_ARGUMENT for what can be no record's index."""
    if not isinstance(index, int) or isinstance(index, bool):
        raise InvalidRequest(f"an index is an int, not {type(index).__name__}: {index!r} names no record")
    if index < 0:
        raise InvalidRequest(f"indexes start at 0: there is no record {index}")
    if index > MAX_INDEX:
        raise InvalidRequest(f"indexes end at {MAX_INDEX}: there is no record {index}")


def check_amount(name: str, amount: object, *, least: int = 0, most: int = MAX_INDEX) -> None:
    """Raises UNEXPECTED_ARGUMENT for what is no number of that kind."""
    if not isinstance(amount, int) or isinstance(amount, bool) or not least <= amount <= most:
        raise InvalidRequest(f"{name} is {amount!r}: give an int from {least} to {most}")


def check_timeout_ms(timeout_ms: object) -> None:
    """Raises UNEXPECTED_ARGUMENT for what is no number of milliseconds to wait."""
    if not is_timeout_ms(timeout_ms):
        raise InvalidRequest(f"timeout_ms is {timeout_ms!r}: give a positive number of milliseconds, a year at most")


def is_timeout_ms(timeout_ms: object) -> bool:
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int | float):
        return False
    return 0 < timeout_ms <= MAX_TIMEOUT_MS


def check_place(consistency: object, node: object) -> None:
    """Raises UNEXPECTED_ARGUMENT unless they say how consistent a read is to be, and at which node."""
    if not isinstance(consistency, Consistency):
        known = ", ".join(f"Consistency.{each.name}" for each in Consistency)
        raise InvalidRequest(f"consistency is {consistency!r}: give one of {known}")
    if node is not None and not isinstance(node, str):
        raise InvalidRequest(f"node is {node!r}: give a node's id or address as a str")
