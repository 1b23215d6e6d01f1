"""An observer around a node: what it does for one group changes nothing of another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dledger.common.errors import DLedgerError
from dledger.common.types import DEFAULT_GROUP, Member
from dledger.node.node import Node
from dledger.node.opening import AnyReplica
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.life import Life


class NodeObserver:
    """Shows the judges of all groups what ``node`` does. The product does not know."""

    def __init__(self, life: Life, node: Node) -> None:
        self._life = life
        self._node = node
        self._take, self._members, self._failed = node.groups.take, node.on_members, node.on_failure
        self._owe, self._caught_up = node.owe_catch_up, node.on_caught_up
        node.groups.take = self._on_take  # type: ignore[method-assign]
        node.on_members = self._on_members  # type: ignore[method-assign]
        node.on_failure = self._on_failure  # type: ignore[method-assign]
        node.owe_catch_up = self._on_owe  # type: ignore[method-assign]
        node.on_caught_up = self._on_caught_up  # type: ignore[method-assign]

    def _on_take(self, replica: AnyReplica) -> None:
        self._take(replica)
        self._life.of(replica.group).taken(replica)

    def _on_members(self, group: str, members: Sequence[Member], *, is_committed: bool) -> None:
        before = self._known_beside(group)
        self._members(group, members, is_committed=is_committed)
        if self._known_beside(group) != before:
            told = f"the members of {group} changed on {self._life.host.id}, and what others hold of their peers"
            raise Violation("a group's word is its own", told)

    def _known_beside(self, group: str) -> dict[str, list[bytes]]:
        """What all groups but this one hold of their peers."""
        book = self._node._book
        assert book is not None
        groups = [name for name in self._life.groups if name != group]
        return {name: [each.SerializeToString(deterministic=True) for each in book.of(name).records] for name in groups}

    def _on_failure(self, group: str, failure: DLedgerError) -> None:
        self._failed(group, failure)
        if group != DEFAULT_GROUP:
            self._life.of(group).failure = failure

    async def _on_owe(self, group: str) -> None:
        seat = self._life.of(group).seat
        settlements = seat.settlements
        await self._owe(group)
        seat.is_owing = seat.settlements == settlements  # it may have been caught up before that was durable

    def _on_caught_up(self, group: str) -> None:
        seat = self._life.of(group).seat
        seat.is_owing, seat.settlements = False, seat.settlements + 1
        before = self._owing_beside(group)
        self._caught_up(group)
        if self._owing_beside(group) != before:
            told = f"{self._life.host.id} was caught up in {group}, and forgot what it owes in another one of {before}"
            raise Violation("a debt is settled by its own group", told)

    def _owing_beside(self, group: str) -> list[str]:
        """In which groups but this one the node owes a catch-up, by its own word."""
        files_of = self._node.groups._opener._files
        return [name for name, files in files_of.items() if name != group and files.record.owes_catch_up]
