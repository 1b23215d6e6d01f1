"""The memory that a server holds for its clients, bounded in all.

Requests that have come in part, or that no handler has taken yet; answers that clients do not take; calls under way.
Each call says how much it holds now; what would go beyond is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from dledger.common.config import MIB
from dledger.rpc.server.turns import Turns


@dataclass(frozen=True, slots=True)
class HeldLimits:
    request_bytes: int = 128 * MIB
    """Of requests, in all. A message counts with its whole size as soon as its beginning says that."""
    connection_request_bytes: int = 64 * MIB
    answer_bytes: int = 16 * MIB
    """Of answers on their way to slow clients, in all."""
    turn_bytes: int = 16 * MIB
    """Of answers made in turns, with their frames (turns.py)."""
    calls: int = 20_000
    """Under way at a time, in all."""


SMALL_ANSWER_BYTES = 4 * 1024
"""An answer up to this is always kept: the limits on streams and calls bound how many there are."""


class Held:
    """Of one server."""

    __slots__ = ("answer_bytes", "calls", "limits", "request_bytes", "turns")

    def __init__(self, limits: HeldLimits | None = None) -> None:
        self.limits = limits or HeldLimits()
        self.request_bytes = 0
        self.answer_bytes = 0
        self.calls = 0
        self.turns = Turns(self.limits.turn_bytes)

    @property
    def takes_calls(self) -> bool:
        return self.calls < self.limits.calls

    def has_room_for_answer(self, size_bytes: int) -> bool:
        return size_bytes <= SMALL_ANSWER_BYTES or self.answer_bytes + size_bytes <= self.limits.answer_bytes


class HeldRequests:
    """Of one connection."""

    __slots__ = ("_bytes", "_held")

    def __init__(self, held: Held) -> None:
        self._held = held
        self._bytes = 0

    def add(self, size_bytes: int) -> str:
        """``size_bytes`` more, or less. Returns why that is too much; empty: it is not."""
        self._bytes += size_bytes
        held = self._held
        held.request_bytes += size_bytes
        if size_bytes <= 0:
            return ""
        limits = held.limits
        if held.request_bytes > limits.request_bytes:
            return _too_much("the node", limits.request_bytes)
        if self._bytes > limits.connection_request_bytes:
            return _too_much("this connection", limits.connection_request_bytes)
        return ""


def _too_much(whose: str, limit_bytes: int) -> str:
    return (
        f"the requests that are on their way to {whose} exceed {limit_bytes // MIB} MiB: "
        "send this one again when others are answered"
    )
