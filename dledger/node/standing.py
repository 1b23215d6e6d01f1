"""Standing: what the node holds of its peers, told to whichever replica of the group there is now, and to the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dledger.common.types import NodeId
from dledger.node.peers import HasState


class Judging(Protocol):
    @property
    def log(self) -> HasState: ...

    def doubt(self, peer: NodeId) -> None: ...

    def may_found(self, may_found: bool) -> None: ...

    def trust(self, peer: NodeId) -> None: ...

    def forget(self, peer: NodeId) -> None: ...


class Standing:
    """See ``acquaintances.Judged``."""

    def __init__(self, current: Callable[[], Judging]) -> None:
        self._current = current
        self._doubted: set[NodeId] = set()
        self._may_found = False

    @property
    def log(self) -> HasState:
        return self._current().log

    def doubt(self, peer: NodeId) -> None:
        self._doubted.add(peer)
        self._current().doubt(peer)

    def may_found(self, may_found: bool) -> None:
        self._may_found = may_found
        self._current().may_found(may_found)

    def trust(self, peer: NodeId) -> None:
        self._doubted.discard(peer)
        self._current().trust(peer)

    def forget(self, peer: NodeId) -> None:
        self._current().forget(peer)

    def tell_all(self) -> None:
        """To a replica that has just taken over."""
        self._current().may_found(self._may_found)
        for peer in sorted(self._doubted):
            self._current().doubt(peer)
