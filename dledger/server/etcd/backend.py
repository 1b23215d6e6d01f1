"""What the services ask of whatever stands behind them: one store in this process, or the state machine of a group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from dledger.store.machine import Store
from dledger.store.watch import WatchHub


class ClusterMember(NamedTuple):
    id: int
    """Unsigned, of 64 bits; never 0."""
    name: str
    peer_urls: Sequence[str]
    client_urls: Sequence[str]
    is_learner: bool = False


class LeaseTimes(NamedTuple):
    granted_s: int
    remaining_s: int


class StoreBackend(Protocol):
    """Every method may raise what the log raises (DLedgerError), and StoreRefused where that is said."""

    member_id: int
    quota_bytes: int

    @property
    def cluster_id(self) -> int: ...

    @property
    def store(self) -> Store:
        """As of what is applied here. It is another object after the state machine was built anew. Raises
        LEADER_NOT_READY unless it ``is_there``."""

    @property
    def watches(self) -> WatchHub:
        """It has taken in what is applied here, or soon will. Raises LEADER_NOT_READY unless the store ``is_there``."""

    @property
    def is_there(self) -> bool:
        """Whether the store is to be served: else it is behind what this node served before, or should have."""

    async def until_there(self) -> None:
        """Raises LEADER_NOT_READY if that takes longer than an election."""

    @property
    def term(self) -> int:
        """As far as this node knows. It raises nothing: an answer of what was carried out has it in its header."""

    @property
    def leader_id(self) -> int:
        """The member that leads as far as this one knows; 0: none."""

    @property
    def applied_index(self) -> int: ...

    @property
    def commit_index(self) -> int: ...

    def members(self) -> Sequence[ClusterMember]: ...

    async def submit(self, command: bytes) -> Any:
        """Returns what the store answers (``Store.decode_answer``), once the command is committed and applied here.
        Raises StoreRefused."""

    async def barrier(self) -> None:
        """Returns when everything that was committed before the call is applied here."""

    async def keep_alive(self, lease_id: int) -> int:
        """Gives a lease its full time again, and returns it in seconds: the leader does, once it knows that it still
        leads. Raises StoreRefused: LEASE_NOT_FOUND."""

    async def lease_times(self, lease_id: int) -> LeaseTimes:
        """By the leader's clock. Everything that was committed before the call is applied here when it returns. Raises
        StoreRefused: LEASE_NOT_FOUND."""

    async def move_leader(self, target_id: int) -> None:
        """A member that is none, or no voter, is refused with BAD_LEADER_TRANSFEREE (refusals.py)."""

    async def leader_lost(self) -> None:
        """Returns when the cluster has been without a leader for longer than elections take."""
