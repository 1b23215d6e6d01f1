"""``Admin`` for programs without an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from dledger.client.admin_calls import Admin
    from dledger.client.admin_results import MembershipChange, RetentionChange, TrimResult
    from dledger.common.types import GroupSettings

Result = TypeVar("Result")


class Call(Protocol):
    """Runs a method of ``Admin`` in the client's loop, and waits."""

    def __call__(self, method: Callable[[Admin], Awaitable[Result]], /) -> Result: ...


class BlockingAdmin:
    """``Admin``, blocking: every method does, raises and promises what ``Admin``'s does."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def transfer_leadership(
        self, to: str | None = None, *, dry_run: bool = False, timeout_ms: float | None = None
    ) -> tuple[str, int]:
        """Hands the leadership over."""
        return self._call(lambda admin: admin.transfer_leadership(to, dry_run=dry_run, timeout_ms=timeout_ms))

    def set_preferred(
        self, priorities: Mapping[str, int], *, dry_run: bool = False, timeout_ms: float | None = None
    ) -> GroupSettings:
        """Sets which member should lead."""
        return self._call(lambda admin: admin.set_preferred(priorities, dry_run=dry_run, timeout_ms=timeout_ms))

    def add_learner(
        self, node_id: str, peer_address: str, *, dry_run: bool = False, timeout_ms: float | None = None
    ) -> MembershipChange:
        """Adds a node that replicates and does not vote."""
        return self._call(
            lambda admin: admin.add_learner(node_id, peer_address, dry_run=dry_run, timeout_ms=timeout_ms)
        )

    def promote(self, node_id: str, *, dry_run: bool = False, timeout_ms: float | None = None) -> MembershipChange:
        """Makes a learner a voter."""
        return self._call(lambda admin: admin.promote(node_id, dry_run=dry_run, timeout_ms=timeout_ms))

    def remove(self, node_id: str, *, dry_run: bool = False, timeout_ms: float | None = None) -> MembershipChange:
        """Removes a member."""
        return self._call(lambda admin: admin.remove(node_id, dry_run=dry_run, timeout_ms=timeout_ms))

    def readmit(self, node_id: str, *, dry_run: bool = False, timeout_ms: float | None = None) -> MembershipChange:
        """Takes a member with another disk as a learner again."""
        return self._call(lambda admin: admin.readmit(node_id, dry_run=dry_run, timeout_ms=timeout_ms))

    def trim(self, before: int, *, dry_run: bool = False, timeout_ms: float | None = None) -> TrimResult:
        """Drops the records before an index."""
        return self._call(lambda admin: admin.trim(before, dry_run=dry_run, timeout_ms=timeout_ms))

    def set_retention(
        self,
        *,
        max_age_ms: int | None = None,
        max_bytes: int | None = None,
        dry_run: bool = False,
        timeout_ms: float | None = None,
    ) -> RetentionChange:
        """What is trimmed by itself."""
        return self._call(
            lambda admin: admin.set_retention(
                max_age_ms=max_age_ms, max_bytes=max_bytes, dry_run=dry_run, timeout_ms=timeout_ms
            )
        )
