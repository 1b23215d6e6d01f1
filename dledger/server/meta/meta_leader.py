"""The leader of the store's group, as a node sees it: who it is, and when it is another one."""

from __future__ import annotations

import asyncio

from dledger.common.futures import release
from dledger.common.types import META_GROUP, NodeId, Term
from dledger.node.node import Node


class MetaLeader:
    """Told by the node, from when it is made."""

    def __init__(self, node: Node, group: str = META_GROUP) -> None:
        self.id = NodeId("")
        """Empty: none is known."""
        self.term = Term(0)
        """As this node was told last; 0: it was told of none yet."""
        self._group = group
        self._changed: asyncio.Future[None] | None = None
        node.add_listener(self._on_role)

    def _on_role(self, group: str, _role: object, term: Term, leader_id: NodeId) -> None:
        """Also a leader that is elected again is another one: of a later term."""
        if group == self._group:
            self.id, self.term = leader_id, term
            changed, self._changed = self._changed, None
            release(changed)

    def changed(self) -> asyncio.Future[None]:
        """Done at the next change. It is shared: not to be cancelled."""
        if self._changed is None or self._changed.done():
            self._changed = asyncio.get_running_loop().create_future()
        return self._changed

    async def wait_changed(self, within_s: float) -> bool:
        """Whether it was another one within that time."""
        done, _ = await asyncio.wait([self.changed()], timeout=within_s)
        return bool(done)

    async def lost(self, patience_s: float) -> None:
        """Returns when none has been known for so long."""
        while True:
            if self.id:
                await asyncio.shield(self.changed())
            elif not await self.wait_changed(patience_s) and not self.id:
                return
