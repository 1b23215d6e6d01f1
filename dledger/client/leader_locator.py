"""The leader and its address: a cache that is filled by asking around and emptied by every sign of an error."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple

from dledger.client.metadata import AddressBook, Metadata
from dledger.client.rounds import Round
from dledger.client.stubs import LogStubs
from dledger.common.errors import Code, DeadlineExceeded, DLedgerError, NotLeader, PeerRefused, error
from dledger.common.futures import retrieve
from dledger.common.types import META_GROUP, Consistency
from dledger.rpc.client.cancellation import client_closed
from dledger.rpc.client.failures import unary
from dledger.rpc.client.retry import ASKS_ELSEWHERE
from dledger.v1 import log_pb2

if TYPE_CHECKING:
    from dledger.client.connections import Connections
    from dledger.rpc.client.channels import Endpoint

logger = logging.getLogger(__name__)

ASK_TIMEOUT_MS = 1_000
"""How long one node may take to name the leader."""
MOST_HOPS = 3
"""From a node that heard of an earlier leader to this leader, and on to the next."""


class _Leader(NamedTuple):
    address: str
    term: int


class LeaderLocator:
    """Finds the leader and the members of one group, over the connections that it shares with those of other groups."""

    def __init__(self, connections: Connections, group: str) -> None:
        self._channels = connections.channels
        self._cluster = connections.book
        self._refresher = connections.refresher
        self._book = AddressBook(connections.book, group)
        self.group = group
        self._closed = False
        self._leader: _Leader | None = None
        self._suspect: _Leader | None = None
        self._pointed_at = ""
        """The next leader's address, by the last leader's word. It is asked first of all, and before it counts: an
        address alone does not tell its cluster."""
        self._search: asyncio.Task[_Leader] | None = None

    @property
    def addresses(self) -> list[str]:
        """The members learned of, then the endpoints given."""
        return self._book.addresses

    async def find(self) -> Endpoint:
        """The leader, from the cache or by one round of questions that all callers share.

        Raises Unavailable when no answering node knows a leader, or no node answers: ask again after a moment. Raises
        the errors of ``check``, as all of these questions do.
        """
        self.check()
        if self._leader is not None:
            return self._channels.at(self._leader.address)
        if self._search is None or self._search.done():
            self._search = asyncio.create_task(self._ask_around(), name="dledger-find-leader")
            self._search.add_done_callback(retrieve)  # its waiting callers may all be cancelled
        search = self._search
        await asyncio.wait({search})  # a cancelled caller leaves the search to the others
        if search.cancelled():
            raise client_closed()
        return self._channels.at(search.result().address)

    async def find_for_appends(self) -> Endpoint:
        """As ``find``, but the leader is asked anew for its cluster. It may have been emptied since, and have founded
        another cluster at its address. Then its log would take records meant for ours.

        Two gaps remain. One is the moment between that answer and the next request. The other is reads: they trust the
        cache until the members are asked for again.
        """
        while True:
            endpoint = await self.find()
            try:
                await self.ask(endpoint.address)
            except DLedgerError as refusal:
                if refusal.code in ASKS_ELSEWHERE:
                    self.lost(endpoint.address, refusal)
                if not self._cluster.is_of_others(endpoint.address):
                    raise  # otherwise the others' leader is looked for: this one is not found again
            else:
                return endpoint

    @property
    def closed(self) -> bool:
        """Whether the client was closed."""
        return self._closed or self._channels.closed

    def check(self) -> None:
        """Raises the error that makes asking again useless. It is SHUTTING_DOWN once the client was closed,
        UNKNOWN_CLUSTER once its endpoints turned out to be of two clusters."""
        if self.closed:
            raise client_closed()
        if self._cluster.conflict is not None:
            raise self._cluster.conflict.copy()

    @property
    def in_conflict(self) -> bool:
        """Whether the endpoints given turned out to be of two clusters."""
        return self._cluster.conflict is not None

    async def any_node(self) -> Endpoint:
        """The cached leader, else any node that answers."""
        self.check()
        if self._leader is not None:
            return self._channels.at(self._leader.address)
        _, address = await self._first_answer()
        return self._channels.at(address)

    async def route(self, node: str | None, consistency: Consistency) -> Endpoint:
        """The node to ask: the one named (an id, or host:port), else the leader, or any node for a committed read."""
        if node is None:
            return await (self.find() if consistency is Consistency.LINEARIZABLE else self.any_node())
        self.check()
        address = self._address_of(node)
        if not address:
            await self.metadata()
            address = self._address_of(node)
        if not address:
            raise error(Code.UNKNOWN_MEMBER, f"the group {self.group!r} has no member {node!r} with an address")
        if not self._cluster.is_of_us(address):
            await self.ask(address)  # an address does not tell its cluster
        return self._channels.at(address)

    def _address_of(self, node: str) -> str:
        """Of a member by its id, or by the address itself; empty if nobody told of it."""
        known = self._book.metadata
        return (known.address_of(node) if known else "") or (node if node in self.addresses else "")

    async def metadata(self) -> Metadata:
        """The group as the first node that answers knows it, the leader if it is known. Raises Unavailable."""
        return (await self._first_answer())[0]

    async def is_member(self, node: str) -> bool:
        """Whether ``node``, an id or an address, is still one; True as long as no leader says otherwise."""
        if self._book.names(node):
            return True
        try:
            await self.newest_metadata()  # it may have been added a moment ago
        except DLedgerError:
            return True
        return self._book.names(node)

    async def newest_metadata(self, timeout_ms: float | None = None) -> Metadata:
        """As the leader knows the group; if no leader answers, in time, as the node of the highest term does.

        Raises Unavailable, DeadlineExceeded.
        """
        best: Metadata | None = None
        round_ = self._round()
        try:
            async with asyncio.timeout(timeout_ms / 1000 if timeout_ms else None):
                async for metadata, teller in round_:
                    best = _newer(best, metadata)
                    told, by_the_leader = await self._followed(metadata, teller)
                    if by_the_leader:
                        return told
                    best = _newer(best, told)
        except TimeoutError:
            if best is None:
                raise DeadlineExceeded(f"no endpoint answered within {timeout_ms:.0f} ms") from None
        finally:
            await round_.close()
        if best is None:
            raise round_.nobody()
        return best

    async def _followed(self, metadata: Metadata, teller: str) -> tuple[Metadata, bool]:
        """Asks the leader named by ``metadata``. Returns its answer, and whether it takes itself for the leader."""
        for _ in range(MOST_HOPS):
            leader = metadata.address_of(metadata.leader_id)
            if leader in ("", teller):
                return metadata, leader == teller
            try:
                metadata, teller = await self.ask(leader), leader
            except DLedgerError:
                break  # it is gone: somebody else may know of another
        return metadata, False

    def lost(self, address: str, refusal: DLedgerError) -> None:
        """``address`` refused as a leader would not, or cannot be reached: ask around, where it points first."""
        if self._leader is None or self._leader.address != address:
            return
        self._suspect, self._leader = self._leader, None
        if isinstance(refusal, NotLeader) and refusal.leader_address not in ("", address):
            self._pointed_at = refusal.leader_address
            self._refresher.hurry(self)  # the new leader may have members that we have not heard of

    async def moved_on(self, address: str) -> bool:
        """Whether another node than ``address`` is said to lead in a later term; asked of the others, once."""
        current = self._leader
        if current is None or current.address != address:
            return True
        self._suspect = current
        try:
            found = await self._ask_around()
        except DLedgerError:
            return False  # nobody says so; an endpoint that cannot be asked says nothing
        if found.address == address or (found.term < current.term and not self._cluster.is_of_others(address)):
            self._leader = current
            return False
        return True

    async def close(self) -> None:
        """Ends a search under way. The connections stay open for other groups."""
        self._closed = True
        self._refresher.remove(self)
        if self._search is not None and not self._search.done():
            self._search.cancel()
            await asyncio.wait({self._search})

    async def _first_answer(self) -> tuple[Metadata, str]:
        round_ = self._round()
        try:
            async for metadata, address in round_:
                return metadata, address
        finally:
            await round_.close()
        raise round_.nobody()

    async def _ask_around(self) -> _Leader:
        """One round. A node that names the leader we just lost counts only if no other leader is named."""
        stale: _Leader | None = None
        round_ = self._round()
        try:
            async for metadata, _ in round_:
                address = metadata.address_of(metadata.leader_id)
                if not address or self._cluster.is_of_others(address):
                    continue
                found = _Leader(address, metadata.term)
                suspect = self._suspect
                if suspect is not None and found.address == suspect.address and found.term <= suspect.term:
                    stale = found
                    continue
                self._leader, self._suspect, self._pointed_at = found, None, ""
                return found
        finally:
            await round_.close()
        if stale is None:
            raise round_.nobody()
        self._leader = stale
        return stale

    def _in_order(self) -> list[str]:
        """The leader, or the node that the last one pointed at, first; the suspected one last."""
        suspect = self._suspect.address if self._suspect else ""
        leader = self._leader.address if self._leader else self._pointed_at
        known = dict.fromkeys([*([leader] if leader else []), *self.addresses])
        return sorted(known, key=lambda address: (address == suspect, address != leader))

    def _round(self) -> Round:
        return Round(self, self._in_order(), meets=not self._cluster.has_met_all)

    def met(self, *, somebody: bool) -> None:
        """The endpoints were asked of which cluster they are; ``somebody`` has answered. Raises as ``check``."""
        self._cluster.has_met_all = somebody
        self.check()

    async def ask(self, address: str) -> Metadata:
        """What one node knows. Raises UNKNOWN_CLUSTER for one of another cluster, which leads none of ours."""
        endpoint = self._channels.at(address)
        try:
            answer = await self._ask_of(endpoint, self.group)
            metadata = self._book.learn(answer, address)
        except PeerRefused:
            if self._leader is not None and self._leader.address == address:
                self._leader = None
            raise
        except DLedgerError as refusal:
            if refusal.code is Code.UNKNOWN_GROUP and self._cluster.is_of_us(address):
                self._forget()
            elif refusal.code is Code.NOT_HERE and self.group != META_GROUP:
                await self._ask_for_nodes(endpoint)
            raise
        if not self._closed:
            self._refresher.add(self)
        return metadata

    @staticmethod
    async def _ask_of(endpoint: Endpoint, group: str) -> Metadata:
        request = log_pb2.GetMetadataRequest(group=group)
        return Metadata.from_wire(
            await unary(endpoint, endpoint.stub(LogStubs).log.GetMetadata, request, ASK_TIMEOUT_MS)
        )

    async def _ask_for_nodes(self, endpoint: Endpoint) -> None:
        """Asks a node without our group for the members of ``meta``, which are all nodes: some may have ours.

        Raises UNKNOWN_CLUSTER.
        """
        try:
            told = await self._ask_of(endpoint, META_GROUP)
        except DLedgerError as refusal:
            logger.debug("%s does not say which nodes there are: %s", endpoint.address, refusal)
            return
        self._cluster.learn(META_GROUP, told, endpoint.address)

    def _forget(self) -> None:
        """The group was deleted: what another of its name says counts, although it begins with the first term."""
        self._book.forget()
        self._leader, self._suspect, self._pointed_at = None, None, ""


def _newer(best: Metadata | None, told: Metadata) -> Metadata:
    return told if best is None or told.term > best.term else best
