"""Any node takes any call: it sends the call on to the leader, or to a member of the group, and hands the answer back.

A call goes over a connection of its own to the other node's port for clients, so it never stands before a heartbeat. A
member of the group knows the leader: one hop. Any other node knows the members: two hops. The metadata count the
hops (``rpc/hops.py``). The caller's deadline bounds all of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing
from typing import Any, NamedTuple, Protocol, TypeVar

from google.protobuf.message import Message

from dledger.common.errors import Code, DLedgerError, error
from dledger.common.futures import retrieve
from dledger.common.resolver import Resolver
from dledger.common.types import Member
from dledger.rpc.client.channel import Channel, StreamCall
from dledger.rpc.client.rpc_failure import RpcFailure
from dledger.rpc.hops import CLUSTER_ID, HOPS, controls, hops_left
from dledger.server.onward import MOST_HOPS, NOT_DONE, Address, in_order, not_sent, verdict

SERVICE = "/dledger.v1.LogService/"

Answer = TypeVar("Answer", bound=Message)


class Caller(Protocol):
    """The part of a call's context for its way onward."""

    def invocation_metadata(self) -> Iterable[tuple[str, Any]] | None: ...

    def time_remaining(self) -> float | None:
        """Seconds; None without a deadline."""
        ...


class _InProcess:
    """The program around the node: it bounds its calls itself."""

    def invocation_metadata(self) -> Iterable[tuple[str, Any]]:
        return ()

    def time_remaining(self) -> float | None:
        return None


IN_PROCESS = _InProcess()


class RefusedCall(NamedTuple):
    """A call after this node's refusal: the node may send it on."""

    method: str
    group: str
    refusal: DLedgerError
    caller: Caller
    service: str = SERVICE


class Map(Protocol):
    """The node's knowledge of the other nodes."""

    @property
    def own_address(self) -> str:
        """Where this node serves clients."""

    @property
    def cluster_id(self) -> str:
        """Empty until it is known."""

    def members_to_ask(self, group: str, refusal: DLedgerError) -> list[Member]:
        """The nodes to ask after this node's refusal: the leader if it is known, or members of the group."""

    def addresses_of(self, member: Member) -> list[str]:
        """Where the API of a node may be reached."""


class Forwarder:
    """Of one node. Its connections are opened when they are needed."""

    def __init__(self, map_: Map, connect: Callable[[str], Channel] | None = None) -> None:
        self._map = map_
        resolver = Resolver()
        self._connect = connect or (lambda address: Channel(address, resolver=resolver))
        self._channels: dict[str, Channel] = {}
        self._failed: set[str] = set()
        """Addresses without a connection at the last attempt."""
        self._writers: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Ends the calls under way."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()

    def check_sender(self, caller: Caller) -> None:
        """Raises UNKNOWN_CLUSTER for a call from a node of another cluster."""
        told = controls(caller.invocation_metadata()).get(CLUSTER_ID)
        if told is not None and told != self._map.cluster_id:
            own = self._map.cluster_id
            raise error(Code.UNKNOWN_CLUSTER, f"this node belongs to cluster {own}, not {told}, whose node sent a call")

    def check_node(self, caller: Caller) -> None:
        """As ``check_sender``, and raises it also for a call from no node at all."""
        self.check_sender(caller)
        if CLUSTER_ID not in controls(caller.invocation_metadata()):
            raise error(Code.UNKNOWN_CLUSTER, "this is for the nodes of the cluster alone")

    async def unary(self, refused: RefusedCall, request: Message, answer: type[Answer]) -> Answer:
        """The other node's answer. Raises this node's refusal when the call may not be sent on, or could not be; else
        the other node's refusal. Raises TERM_CHANGED or WAIT_QUORUM_ACK_TIMEOUT when the other node did not answer a
        change of the log."""
        method, refusal, caller = refused.service + refused.method, refused.refusal, refused.caller
        hops = self._hops(refused)
        encode, decode = type(request).SerializeToString, answer.FromString
        for target in self._targets(refused):
            call = self._channel(target).unary_unary(method, encode, decode)
            try:
                answered: Answer = await call(request, timeout=caller.time_remaining(), metadata=self._metadata(hops))
            except RpcFailure as failure:
                refusal = self._judged(failure, refused.method, target, refusal)
            else:
                self._failed.discard(target.address)
                return answered
        raise refusal

    async def stream(
        self, refused: RefusedCall, first: bytes, rest: AsyncIterator[bytes]
    ) -> AsyncGenerator[bytes, None]:
        """As ``unary``, for a stream of answers, in encoded messages. ``rest`` are the requests behind ``first``. An
        error of ``rest`` is raised after the answers to the requests before it."""
        method, refusal, caller = refused.service + refused.method, refused.refusal, refused.caller
        hops = self._hops(refused)
        for target in self._targets(refused):
            make = self._channel(target).stream_stream(method)
            call = make(timeout=caller.time_remaining(), metadata=self._metadata(hops))
            has_begun = False
            try:
                await call.write(first)
                has_begun = True  # what is taken of ``rest`` cannot be given to another node
                async for answer in self._answers(call, rest):
                    yield answer
            except RpcFailure as failure:
                refusal = self._judged(failure, refused.method, target, refusal)
                if has_begun:
                    raise refusal from failure
            else:
                self._failed.discard(target.address)
                return
            finally:
                call.cancel()
        raise refusal

    async def read(self, refused: RefusedCall, request: Message) -> AsyncGenerator[bytes, None]:
        """A stream of answers to one request."""
        async with aclosing(self.stream(refused, request.SerializeToString(), _nothing())) as answers:
            async for answer in answers:
                yield answer

    async def _answers(self, call: StreamCall, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        # Not cancelled with the answers: a read of requests ends with its call (rpc/server/pipeline.py says why).
        writer = asyncio.get_running_loop().create_task(_write(call, requests), name="onward-writer")
        self._writers.add(writer)
        writer.add_done_callback(self._forget)
        while (answer := await call.read()) is not None:
            yield answer
        if writer.done() and not writer.cancelled() and isinstance(misfit := writer.exception(), DLedgerError):
            raise misfit

    def _forget(self, writer: asyncio.Task[None]) -> None:
        self._writers.discard(writer)
        retrieve(writer)  # its stream has ended, and the reader of the answers knows why

    def _hops(self, refused: RefusedCall) -> int:
        """How often the next node may send the call on. Raises this node's refusal when this node may not."""
        most = MOST_HOPS.get(refused.refusal.code, 0)
        left = hops_left(controls(refused.caller.invocation_metadata()).get(HOPS), most) if most else 0
        if not left:
            raise refused.refusal
        return left - 1

    def _metadata(self, hops: int) -> tuple[tuple[str, str], ...]:
        return (HOPS, str(hops)), (CLUSTER_ID, self._map.cluster_id)

    def _targets(self, refused: RefusedCall) -> list[Address]:
        members = self._map.members_to_ask(refused.group, refused.refusal)
        addresses = [Address(each.id, address) for each in members for address in self._map.addresses_of(each)]
        return in_order(addresses, self._map.own_address, self._failed.__contains__)

    def _channel(self, target: Address) -> Channel:
        channel = self._channels.get(target.address)
        if channel is None:
            channel = self._channels[target.address] = self._connect(target.address)
        return channel

    def _judged(self, failure: RpcFailure, method: str, target: Address, refusal: DLedgerError) -> DLedgerError:
        """The refusal for the caller if no other node can be asked. Raises the error if it ends the call."""
        told = verdict(failure, method, target.address)
        if told is None:
            self._failed.add(target.address)
            return not_sent(refusal, f"{target.address} {failure.details}")
        self._failed.discard(target.address)
        if told.code not in NOT_DONE:
            raise told from failure
        return refusal if told.code is Code.UNKNOWN_CLUSTER else told


async def _write(call: StreamCall, requests: AsyncIterator[bytes]) -> None:
    try:
        async for request in requests:
            await call.write(request)
    finally:
        await call.done_writing()


async def _nothing() -> AsyncIterator[bytes]:
    """No requests behind the first."""
    return
    yield
