"""Who leads, and where: a cache that is filled by asking around and emptied by every sign that it is wrong."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from dledger.client.metadata import AddressBook, Metadata
from dledger.client.stubs import LogStubs
from dledger.common.errors import Code, DeadlineExceeded, DLedgerError, NotLeader, PeerRefused, Unavailable, error
from dledger.common.types import Consistency
from dledger.rpc.client.cancellation import client_closed
from dledger.rpc.client.failures import unary
from dledger.rpc.client.retry import ASKS_ELSEWHERE, PASSING
from dledger.v1 import log_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dledger.rpc.client.channels import Channels, Endpoint

ASK_TIMEOUT_MS = 1_000
"""How long one node may take to say who leads."""
STAGGER_S = 0.1
"""An endpoint that has not answered for so long is no longer waited for alone: the next one is asked beside it."""
MOST_HOPS = 3
"""From a node that heard of an earlier leader to that one, and on to the next."""
REFRESH_INTERVAL_S = 5.0
"""How often the leader is asked who the members are, so that a client that needs nothing else is not left behind when
they are replaced one by one."""


class _Leader(NamedTuple):
    address: str
    term: int


def _retrieve(search: asyncio.Task[_Leader]) -> None:
    """A search that fails after everybody who waited for it was cancelled is no news."""
    if not search.cancelled():
        search.exception()


class LeaderLocator:
    """Finds the leader and the members of one group."""

    def __init__(self, channels: Channels, endpoints: Sequence[str], group: str, cluster_id: str = "") -> None:
        self._channels = channels
        self._book = AddressBook(endpoints, cluster_id)
        self._met_all = bool(cluster_id)
        """Whether the endpoints given were asked of which cluster they are, all of them at once."""
        self._group = group
        self._leader: _Leader | None = None
        self._suspect: _Leader | None = None
        self._pointed_at = ""
        """Where the last leader said that the next one is: to be asked first, as an address alone says not of whose
        cluster it is."""
        self._search: asyncio.Task[_Leader] | None = None
        self._redirected = asyncio.Event()
        """A new leader was named by the old one: it may have members that we have not heard of."""
        self._refresher: asyncio.Task[None] | None = None

    @property
    def addresses(self) -> list[str]:
        """The members learned of, then the endpoints given."""
        return self._book.addresses

    async def find(self) -> Endpoint:
        """The leader, from the cache or by one round of questions that all callers share.

        Raises Unavailable when nobody who answers knows a leader, or nobody answers: ask again after a moment; and
        what ``check`` raises, as all of these questions do.
        """
        self.check()
        if self._leader is not None:
            return self._channels.at(self._leader.address)
        if self._search is None or self._search.done():
            self._search = asyncio.create_task(self._ask_around(), name="dledger-find-leader")
            self._search.add_done_callback(_retrieve)
        search = self._search
        await asyncio.wait({search})  # which a caller who is cancelled leaves to the others
        if search.cancelled():
            raise client_closed()
        return self._channels.at(search.result().address)

    async def find_for_appends(self) -> Endpoint:
        """As ``find``, of a leader that was asked anew of which cluster it is: it may have been emptied since, and have
        founded another one at its address, whose log would take what is meant for ours.

        What remains is the moment between that answer and what is sent then, and reads: they trust the cache until the
        members are asked for again.
        """
        while True:
            endpoint = await self.find()
            try:
                await self.ask(endpoint.address)
            except DLedgerError as refusal:
                if refusal.code in ASKS_ELSEWHERE:
                    self.lost(endpoint.address, refusal)
                if not self._book.is_of_others(endpoint.address):
                    raise  # otherwise whom the others follow by now is looked for: it is not found again
            else:
                return endpoint

    @property
    def closed(self) -> bool:
        """Whether the client was closed."""
        return self._channels.closed

    def check(self) -> None:
        """Raises what makes asking again of no use: SHUTTING_DOWN once the client was closed, UNKNOWN_CLUSTER once the
        endpoints that it was given turned out to be of two clusters."""
        self._channels.check_open()
        if self._book.conflict is not None:
            raise self._book.conflict.copy()

    @property
    def in_conflict(self) -> bool:
        """Whether the endpoints given turned out to be of two clusters."""
        return self._book.conflict is not None

    async def any_node(self) -> Endpoint:
        """The cached leader, else any node that answers."""
        self.check()
        if self._leader is not None:
            return self._channels.at(self._leader.address)
        _, address = await self._first_answer()
        return self._channels.at(address)

    async def route(self, node: str | None, consistency: Consistency) -> Endpoint:
        """Whom to ask: the node named (an id, or host:port), else the leader, or anyone for a committed read."""
        if node is None:
            return await (self.find() if consistency is Consistency.LINEARIZABLE else self.any_node())
        self.check()
        address = self._address_of(node)
        if not address:
            await self.metadata()
            address = self._address_of(node)
        if not address:
            raise error(Code.UNKNOWN_MEMBER, f"the group {self._group!r} has no member {node!r} with an address")
        if not self._book.is_of_us(address):
            await self.ask(address)  # an address says not of whose cluster it is
        return self._channels.at(address)

    def _address_of(self, node: str) -> str:
        """Of a member by its id, or by the address itself; empty where nobody told of it."""
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
        """What the leader says that ``metadata`` names, and whether it takes itself for the leader."""
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
            self._redirected.set()

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
        if found.address == address or (found.term < current.term and not self._book.is_of_others(address)):
            self._leader = current
            return False
        return True

    async def close(self) -> None:
        """Ends a search under way."""
        tasks = [task for task in (self._search, self._refresher) if task is not None and not task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

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
                if not address or self._book.is_of_others(address):
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
        """The leader, or who was pointed at, first; the one we suspect last."""
        suspect = self._suspect.address if self._suspect else ""
        leader = self._leader.address if self._leader else self._pointed_at
        known = dict.fromkeys([*([leader] if leader else []), *self.addresses])
        return sorted(known, key=lambda address: (address == suspect, address != leader))

    def _round(self) -> _Round:
        return _Round(self, self._in_order(), meets=not self._met_all)

    def met(self, *, somebody: bool) -> None:
        """The endpoints were asked of which cluster they are; ``somebody`` has answered. Raises as ``check``."""
        self._met_all = somebody
        self.check()

    async def ask(self, address: str) -> Metadata:
        """What one node knows. Raises UNKNOWN_CLUSTER for one of another cluster, which leads none of ours."""
        endpoint = self._channels.at(address)
        request = log_pb2.GetMetadataRequest(group=self._group)
        answer = await unary(endpoint, endpoint.stub(LogStubs).log.GetMetadata, request, ASK_TIMEOUT_MS)
        try:
            metadata = self._book.learn(Metadata.from_wire(answer), address)
        except PeerRefused:
            if self._leader is not None and self._leader.address == address:
                self._leader = None
            raise
        if self._refresher is None:
            self._refresher = asyncio.create_task(self._stay_current(), name="dledger-members")
        return metadata

    async def _stay_current(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REFRESH_INTERVAL_S):
                    await self._redirected.wait()
            self._redirected.clear()
            with contextlib.suppress(DLedgerError):  # nobody answers: what is known stays, until somebody does
                await self.newest_metadata()


def _newer(best: Metadata | None, told: Metadata) -> Metadata:
    return told if best is None or told.term > best.term else best


class _Round:
    """Asks the addresses in turn, staggered, and gives out what they answer as it comes.

    ``meets``: all at once, and nothing is given out before those that are quick have said of which cluster they are.
    """

    def __init__(self, leaders: LeaderLocator, addresses: Sequence[str], *, meets: bool) -> None:
        self._leaders = leaders
        self._meets = meets
        self._waiting = deque(addresses)
        self._asked: dict[asyncio.Task[Metadata], str] = {}
        self._answered: deque[tuple[Metadata, str]] = deque()
        self._failures: list[DLedgerError] = []
        self._heard = False

    def __aiter__(self) -> _Round:
        return self

    async def __anext__(self) -> tuple[Metadata, str]:
        if self._meets:
            self._meets = False
            await self._meet()
        while not self._answered:
            if self._waiting:
                self._ask_next()
            if not self._asked:
                raise StopAsyncIteration
            await self._hear(STAGGER_S if self._waiting else None, asyncio.FIRST_COMPLETED)
        return self._answered.popleft()

    async def _meet(self) -> None:
        while self._waiting:
            self._ask_next()
        while self._asked and not self._answered:
            await self._hear(None, asyncio.FIRST_COMPLETED)
        if self._asked:
            await self._hear(STAGGER_S, asyncio.ALL_COMPLETED)
        self._leaders.met(somebody=bool(self._answered))

    def _ask_next(self) -> None:
        address = self._waiting.popleft()
        task = asyncio.create_task(self._leaders.ask(address), name=f"dledger-ask {address}")
        self._asked[task] = address

    async def _hear(self, timeout_s: float | None, until: str) -> None:
        await asyncio.wait(self._asked, timeout=timeout_s, return_when=until)
        for task in [task for task in self._asked if task.done()]:
            self._collect(task, self._asked.pop(task))

    def _collect(self, task: asyncio.Task[Metadata], address: str) -> None:
        try:
            metadata = task.result()
        except DLedgerError as refusal:
            self._failures.append(refusal)
        else:
            self._heard = True
            self._answered.append((metadata, address))

    def nobody(self) -> DLedgerError:
        """Why the round brought nothing: the client's end, a refusal that will not pass, no leader that can be asked,
        or nobody there."""
        self._leaders.check()
        for refusal in self._failures:
            if refusal.code not in PASSING and refusal.code is not Code.UNKNOWN_CLUSTER:
                return refusal
        if self._heard:
            text = "no leader is known: a majority of the nodes is needed to elect one"
            return error(Code.LEADER_NOT_READY, text)
        if all(refusal.code is Code.UNKNOWN_CLUSTER for refusal in self._failures):
            return self._failures[0]  # beside those of ours that are away for a moment it would say nothing
        reasons = "; ".join(str(refusal) for refusal in self._failures)
        return Unavailable(f"no endpoint answers ({reasons}): start the nodes, or name others")

    async def close(self) -> None:
        """Ends the questions that nobody waits for any more."""
        for task in self._asked:
            task.cancel()
        if self._asked:
            await asyncio.wait(self._asked)
