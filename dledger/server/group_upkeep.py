"""A node's work on the directory of groups: it makes its groups fit the directory and their logs.

::

    CreateGroup ──▶ a record in the store ──▶ every founder opens the group, and they elect
    DeleteGroup ──▶ sealing ──▶ the group's leader seals its log ──▶ removed ──▶ every node removes its files
    a change of members ──▶ the group's leader tells the directory ──▶ who is new opens the group as a learner,
                                                                       and who has left drops its files

A start opens what is on the disk without asking the directory. Everything else waits for the directory. A state of it
that lags behind the commits known to this node is not acted upon. A new member does not wait for the record either: the
message of a leader calls it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Protocol

from dledger.client.between_nodes import OtherNodes
from dledger.common.backoff import Backoff
from dledger.common.errors import Code, DLedgerError
from dledger.common.types import META_GROUP, Member, NodeId, Role, Term, id_of
from dledger.group.replica import Replica
from dledger.node.groups import LogPosition
from dledger.node.node import Node
from dledger.server.committed_members import committed_members
from dledger.server.meta.group_records import GroupEntry, GroupMembers
from dledger.server.meta.group_table import GroupTable

logger = logging.getLogger(__name__)

MOST_META_VOTERS = 5
"""So many nodes hold the directory by their votes; the others are learners of it."""
PROMOTION_INTERVAL_S = 0.5
"""A learner of `meta` that has not caught up yet is looked at again after so long."""


class DirectoryState(Protocol):
    """The directory, as far as its upkeep needs it."""

    @property
    def table(self) -> GroupTable: ...

    @property
    def is_current(self) -> bool: ...

    def meta(self) -> Replica: ...

    def entry_of(self, key: str) -> GroupEntry | None: ...

    async def barrier(self) -> None: ...

    async def create_default(self) -> None: ...

    async def record_members(self, entry: GroupEntry, known: GroupMembers) -> None: ...

    async def remove_record(self, entry: GroupEntry) -> None: ...

    def addresses_of(self, members: Sequence[Member]) -> list[str]: ...


class GroupUpkeep:
    """Of one node."""

    def __init__(self, node: Node, directory: DirectoryState, random: Random, others: OtherNodes) -> None:
        self._node = node
        self._groups = node.groups
        self._directory = directory
        self._random = random
        self._others = others
        self._wake = asyncio.Event()
        self._is_all_due = True
        """Every group is to be looked at; else those of ``_changed``."""
        self._changed: set[str] = set()
        """Groups with another leader, or another role of this node."""
        self._called: set[str] = set()
        """Groups that are not here, and for which a leader has a message."""
        self._called_as_of: dict[str, LogPosition] = {}
        """Groups opened for such a message, with the log position of their record at that time. It may lag behind that
        leader."""
        self._promotion: asyncio.TimerHandle | None = None
        node.add_listener(self._on_role)
        node.groups.on_called = self._on_called

    def wake(self) -> None:
        """Something may be to do, in any group."""
        self._is_all_due = True
        self._wake.set()

    def _on_role(self, group: str, *_: object) -> None:
        """A node's death changes many groups: each by itself, so that not all groups are looked at for each."""
        if group == META_GROUP:
            self.wake()
        else:
            self._changed.add(group)
            self._wake.set()

    async def run(self) -> None:
        """Until it is cancelled."""
        backoff = Backoff(self._random, most_ms=1_000)
        try:
            while True:
                try:
                    self._wake.clear()
                    await self._look()
                    backoff.reset()
                    await self._wake.wait()
                except DLedgerError as failure:
                    self._is_all_due = True
                    logger.debug("the groups are not as they should be yet", extra={"why": failure})
                    await asyncio.sleep(backoff.next_s())
        finally:
            if self._promotion is not None:
                self._promotion.cancel()

    async def _look(self) -> None:
        is_all_due, self._is_all_due = self._is_all_due, False
        changed, self._changed = self._changed, set()
        if is_all_due:
            await self._step()
        elif self._directory.is_current:
            entries = [entry for entry in self._entries() if entry.key in changed]
            await self._drop(entries)
            await self._tell(entries)

    async def _step(self) -> None:
        """Raises what stands in the way of one part, once the others are done; done again it goes on from there."""
        leads = self._directory.meta().role is Role.LEADER
        if leads:
            await self._directory.barrier()  # waits until its term's first frame is committed
            await self._directory.create_default()
        elif not self._directory.is_current:
            return  # more is to come, and wakes this task
        parts: list[Callable[[], Awaitable[None]]] = [
            self._remove,
            lambda: self._drop(self._entries()),
            self._open,
            lambda: self._tell(self._entries()),
        ]
        if leads:
            parts += [self._promote, self._seal]
        failures = []
        for part in parts:
            try:
                await part()
            except DLedgerError as failure:
                failures.append(failure)
        if failures:
            raise failures[-1]

    def _entries(self) -> list[GroupEntry]:
        return list(self._directory.table.groups.values())

    # Groups on this node -----------------------------------------------------------------------------------------

    async def _remove(self) -> None:
        """What was removed for good."""
        removed = self._directory.table.removed_ids
        for key in [*self._groups.replicas, *self._groups.recovering, *self._groups.unopened]:
            if id_of(key) in removed:
                logger.info("the group was removed", extra={"group": key})
                await self._groups.remove(key)

    async def _drop(self, entries: Sequence[GroupEntry]) -> None:
        """What this node is no member of any more, as the group's leader told the directory."""
        for entry in entries:
            key, known = entry.key, entry.known
            if key not in self._groups.replicas or entry.names(self._own_id) or not known.changed_at:
                continue
            if self._called_as_of.get(key) == known.as_of:
                continue  # a leader spoke to it since, as to a member
            if await self._groups.drop(key, known.as_of):
                logger.info("this node is no member of the group any more", extra={"group": key})

    async def _open(self) -> None:
        """What this node is a member of, by the record or by a leader's message."""
        entries = self._entries()
        self._groups.names = {entry.name: entry.key for entry in entries}
        for entry in entries:
            key, is_named = entry.key, entry.names(self._own_id)
            if entry.is_sealing or self._groups.has(key) or not (is_named or key in self._called):
                continue
            if not is_named:
                self._called_as_of[key] = entry.known.as_of
            await self._groups.open(key, entry.founders)
        self._called.clear()

    def _on_called(self, key: str, term: Term) -> bool:
        entry = self._directory.entry_of(key)
        if entry is None or entry.is_sealing or term < entry.known.as_of.term:
            return False
        self._called.add(key)
        self.wake()
        return True

    @property
    def _own_id(self) -> NodeId:
        return NodeId(self._node.config.id)

    # What its leaders are to do ----------------------------------------------------------------------------------

    async def _tell(self, entries: Sequence[GroupEntry]) -> None:
        """Tells the directory the members of the groups that this node leads."""
        for entry in entries:
            if (replica := self._groups.replicas.get(entry.key)) is not None:
                await self.tell(entry, replica)

    async def tell(self, entry: GroupEntry, replica: Replica) -> None:
        """Tells the directory of a group's members, if this node leads the group and knows better. Raises what keeps it
        from being told; it is tried again then."""
        known = committed_members(replica)
        if known is not None and known.changed_at > entry.known.changed_at:
            await self._directory.record_members(entry, known)

    async def _promote(self) -> None:
        """One learner of `meta` that has caught up, while there are fewer than five voters."""
        members = self._directory.meta().log.state.members
        learners = [each.id for each in members if not each.voter]
        if not learners or len(members) - len(learners) >= MOST_META_VOTERS:
            return
        for learner in learners:
            try:
                await self._directory.meta().members.promote(learner)
            except DLedgerError as refusal:
                if refusal.code not in (Code.CHANGE_REFUSED, Code.CHANGE_PENDING, Code.UNKNOWN_MEMBER):
                    raise
            else:
                break
        if self._promotion is not None:
            self._promotion.cancel()
        self._promotion = asyncio.get_running_loop().call_later(PROMOTION_INTERVAL_S, self.wake)

    async def _seal(self) -> None:
        """What is to be removed: its leader refuses every append, then its record goes."""
        for entry in [each for each in self._entries() if each.is_sealing]:
            nodes = [*entry.members, *self._directory.meta().log.state.members]
            await self._others.seal(self._directory.addresses_of(nodes), self._node.cluster_id, entry.key)
            await self._directory.remove_record(entry)


def leader_first(replica: Replica) -> list[Member]:
    """The members, as the replica's log has them."""
    return sorted(replica.log.state.members, key=lambda member: member.id != replica.leader_id)
