"""Reading a range: one Read stream after the other, each going on where the last one broke."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from dledger.client.arguments import check_flag, check_index, check_place
from dledger.client.getter import WIRE_CONSISTENCY
from dledger.client.log_client_wire import ReadMessage
from dledger.client.results import Batch
from dledger.client.stubs import LogStubs
from dledger.common.batch import crc32c
from dledger.common.errors import Code, DeadlineExceeded, DLedgerError, InvalidRequest, Unavailable, error
from dledger.common.places import LATEST, THE_END, Kind, Place
from dledger.common.types import Consistency
from dledger.rpc.client.call_loop import CallLoop
from dledger.rpc.client.failures import from_rpc
from dledger.rpc.client.retry import ASKS_ELSEWHERE, NOT_THIS_NODE, PASSING
from dledger.rpc.client.rpc_failure import RpcFailure
from dledger.v1 import log_pb2

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncGenerator, Callable

    from dledger.client.leader_locator import LeaderLocator
    from dledger.client.log_client_wire import ReadBatch
    from dledger.client.starts import Found
    from dledger.client.waits import Waits
    from dledger.rpc.client.channel import StreamCall
    from dledger.rpc.client.channels import Endpoint


SILENCE_S = 2.0
"""A node that sends nothing for so long is left, for the present leader."""


class Range(NamedTuple):
    """What to read: from ``start`` to ``end`` (exclusive; None: the commit index, or for ever when following)."""

    start: Place
    end: int | None
    follow: bool
    consistency: Consistency
    node: str | None

    def check(self) -> None:
        """Raises UNEXPECTED_ARGUMENT."""
        if self.end is not None:
            check_index(self.end)
            if self.start.is_named and self.end < self.start.value:
                begin = self.start.value
                raise InvalidRequest(f"the range ends at {self.end}, before it begins at {begin}: swap the two")
        check_flag("follow", self.follow)
        if self.start == THE_END and not self.follow:
            text = "give follow=True for the records that come, or start=-1 for the last one"
            raise InvalidRequest(f'start is "{LATEST}", the end of the log, and nothing lies behind it yet: {text}')
        check_place(self.consistency, self.node)

    @property
    def since_ms(self) -> int:
        """Only records of that time or later are wanted; 0: all."""
        return self.start.value if self.start.kind is Kind.TIME else 0


class Reader:
    """One pass over a range. ``next_index`` is where it goes on."""

    def __init__(
        self,
        leaders: LeaderLocator,
        group: str,
        wanted: Range,
        found: Found,
        timeout_ms: float,
        *,
        rng: random.Random,
        waits: Waits,
        check_open: Callable[[], None],
    ) -> None:
        """``found``: the index of the start of ``wanted``."""
        self._leaders = leaders
        self._group = group
        self._wanted = wanted
        self._calls = CallLoop(timeout_ms, rng, on_wait=waits.refused)
        """Its deadline: until when the next message must have come. Its reason: why none came lately."""
        self._check_open = check_open
        self._end = wanted.end
        self._promised: int | None = None
        """Of the range, the end of what was committed as the first answer told it."""
        self._has_gained = False
        """Whether the stream has brought anything."""
        self._call: StreamCall | None = None
        self._address = ""
        self._start, self._latest_start = found
        self.next_index = found.start
        self._in_trouble = False
        """Nothing came since a stream broke: a follower's patience counts from then on, not since the last append."""

    async def batches(self) -> AsyncGenerator[list[Batch]]:
        """The batches of the range, in lists: those that came together. Raises when nothing can be had for the timeout,
        or for a refusal that stays."""
        self._calls.renew()
        try:
            while not self._complete():
                try:
                    answer = await self._next_answer()
                except DLedgerError as refusal:
                    await self._recover(refusal)
                    continue
                if answer is None and self._may_end():
                    return
                if answer is None:
                    await self._go_on()
                    continue
                if accepted := self._accept(answer):
                    yield accepted
                    self._calls.renew()  # what the caller took of the time is not the node's
        finally:
            self.hang_up()

    def _complete(self) -> bool:
        return self._end is not None and self.next_index >= self._end

    def _may_end(self) -> bool:
        """Whether a stream that ended well has given all it promised; one that follows has not."""
        return not self._wanted.follow and (self._promised is None or self.next_index >= self._promised)

    async def _go_on(self) -> None:
        """After a stream that ended well, and early: the node knew of fewer commits then than were promised."""
        if self._has_gained:
            self.hang_up()
            return
        text = f"{self._address} ended the stream"
        if not self._wanted.follow:
            assert self._promised is not None
            text = f"{self._address} does not know yet that the records up to {self._promised - 1} are committed"
        await self._recover(Unavailable(text))

    async def _next_answer(self) -> ReadMessage | None:
        """The next message of the stream there is, or of a new one; None at its end."""
        wanted = self._wanted
        if self._call is None:
            endpoint = await self._find_node()
            self._address = endpoint.address
            request = log_pb2.ReadRequest(
                group=self._group,
                start_index=self.next_index,
                end_index=self._end or 0,
                follow=wanted.follow,
                consistency=WIRE_CONSISTENCY[wanted.consistency],
            )
            self._call = endpoint.stub(LogStubs).read(request)
            self._has_gained = False
        reading = asyncio.ensure_future(self._call.read())
        try:
            await self._patiently(reading)
            answer: ReadMessage | None = reading.result()
        except RpcFailure as failure:
            raise from_rpc(failure, self._address) from failure
        finally:
            reading.cancel()
        return answer

    async def _find_node(self) -> Endpoint:
        """The node to ask; raises in time. As long as none is found a follower is in trouble, from the first call
        on."""
        if self._wanted.follow and not self._in_trouble:
            self._calls.renew()
        try:
            return await self._calls.bound(self._leaders.route(self._wanted.node, self._wanted.consistency))
        except DLedgerError:
            self._in_trouble = True
            raise

    async def _patiently(self, reading: asyncio.Future[Any]) -> None:
        """Returns when ``reading`` is done; raises when it is time to ask elsewhere.

        A follower waits for as long as nothing is appended. Meanwhile it makes sure that no other node leads by now.
        """
        wanted = self._wanted
        while True:
            limit_s = SILENCE_S if wanted.follow else min(self._calls.left_ms / 1000, SILENCE_S)
            done, _ = await asyncio.wait({reading}, timeout=limit_s)
            if done:
                return
            if not wanted.follow:
                raise DeadlineExceeded(f"{self._address} sent nothing in time")
            at_leader = wanted.node is None and wanted.consistency is Consistency.LINEARIZABLE
            if at_leader and await self._leaders.moved_on(self._address):
                raise Unavailable(f"{self._address} does not lead any more")
            if wanted.node is not None and not await self._leaders.is_member(wanted.node):
                text = f"{wanted.node} is no member any more: it gets nothing behind record {self.next_index - 1}"
                raise error(Code.UNKNOWN_MEMBER, text, index=self.next_index)

    async def _recover(self, refusal: DLedgerError) -> None:
        """Waits a moment and goes on at ``next_index``; raises what will not pass, or has lasted for too long."""
        self.hang_up()
        self._check_open()
        if refusal.code in ASKS_ELSEWHERE:
            self._leaders.lost(self._address, refusal)
        pinned = self._wanted.node is not None and refusal.code in NOT_THIS_NODE
        passes = self._is_behind(refusal) or self._was_trimmed(refusal) or (refusal.code in PASSING and not pinned)
        if not passes:
            raise refusal
        if self._wanted.follow and not self._in_trouble:
            self._calls.renew()
        self._in_trouble = True
        self._calls.note(refusal)
        if not self._calls.left_ms:
            raise self._calls.reason or refusal
        await self._calls.pause()

    def _is_behind(self, refusal: DLedgerError) -> bool:
        """Whether this node knows of fewer commits than an earlier one: the start came from there, or records did."""
        goes_on = self.next_index > self._start or not self._wanted.start.is_named
        return refusal.code is Code.INDEX_OUT_OF_RANGE and goes_on

    def _was_trimmed(self, refusal: DLedgerError) -> bool:
        """Whether the log has lost records at its start since the start of the range was looked for. Then the read
        begins with what is left, unless the caller named the record, or later ones are gone too."""
        if refusal.code is not Code.INDEX_LESS_THAN_LOCAL_BEGIN or self.next_index > self._start:
            return False
        first_index = int(refusal.metadata.get("first_index", 0))
        if not self._start < first_index <= self._latest_start:
            return False
        self._start = self.next_index = first_index
        return True

    def _accept(self, answer: ReadMessage) -> list[Batch]:
        """Checks the batches, drops records that it had or did not ask for, and notes where to go on.

        Without an end, a read ends at the commit index of the first answer, even if streams break in between.
        """
        if self._promised is None and not self._wanted.follow:
            promised = max(answer.commit_index + 1, self.next_index)
            if answer.batches:
                last = answer.batches[-1].head
                promised = max(promised, last.base_index + last.count)
            self._end = promised if self._end is None else self._end
            self._promised = min(promised, self._end)
        self._calls.progressed()
        self._in_trouble = False
        batches = []
        since_ms = self._wanted.since_ms
        for wire in answer.batches:
            if wire.head.base_index + wire.head.count <= self.next_index:
                continue
            if self._complete():
                break
            batch = self._checked(wire).clipped(self.next_index, self._end)
            self.next_index = batch.end_index
            self._has_gained = True
            if batch.timestamp_ms >= since_ms:
                batches.append(batch)
        return batches

    def _checked(self, wire: ReadBatch) -> Batch:
        head, body = wire
        base_index = head.base_index
        if base_index > self.next_index:
            text = f"{self._address} left out the records {self.next_index} … {base_index - 1}: report it"
            raise error(Code.INTERNAL_ERROR, text)
        if crc32c(body) != head.body_crc:
            text = f"the batch at {base_index} from {self._address} does not match its checksum: read it elsewhere"
            raise error(Code.CORRUPT_LOG, text, index=base_index)
        source = head.producer_id, head.producer_epoch, head.base_sequence
        return Batch(base_index, head.count, head.term, head.timestamp_ms, body, *source)

    def hang_up(self) -> None:
        """Ends the stream under way. A reader that waits for it goes on with another, or learns that the client was
        closed."""
        if self._call is not None:
            self._call.cancel()
            self._call = None
