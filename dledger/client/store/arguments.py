"""Checks of the arguments of calls to the store, before anything is sent."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from dledger.client.arguments import check_amount, is_int
from dledger.common.errors import InvalidRequest

MAX_REVISION = (1 << 63) - 1
MAX_TTL_S = 9_000_000_000


@runtime_checkable
class HasLeaseId(Protocol):
    """A lease that was granted."""

    @property
    def id(self) -> int: ...


LeaseLike = int | HasLeaseId
"""A lease's id, or the lease itself."""


def lease_id(lease: object) -> int:
    """Raises UNEXPECTED_ARGUMENT for what is neither a lease nor the id of one; 0: none."""
    if not is_int(lease) and isinstance(lease, HasLeaseId):
        lease = lease.id
    if not is_int(lease) or not 0 <= lease <= MAX_REVISION:
        raise InvalidRequest(f"lease is {lease!r}: give a lease, or its id")
    return lease


def check_revision(revision: object, name: str = "revision") -> None:
    """0: the present. Raises UNEXPECTED_ARGUMENT."""
    check_amount(name, revision, most=MAX_REVISION)


def check_ttl_s(ttl_s: object) -> None:
    """Raises UNEXPECTED_ARGUMENT."""
    if not is_int(ttl_s) or not 1 <= ttl_s <= MAX_TTL_S:
        raise InvalidRequest(f"the time of a lease is {ttl_s!r}: give whole seconds, from 1 to {MAX_TTL_S}")
