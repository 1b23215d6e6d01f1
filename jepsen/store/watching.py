"""A stream of watches at one node: what it is told is written down as notes, response by response.

::

    {"about":"watch","watch":3,"process":7,"node":"n1","key":"kv/","end":"kv0","start":41,"before":true,…}
    {"about":"told","watch":3,"kind":"events","revision":45,"events":[[44,"kv/1",["3.17",12,44,6],null],…]}

An event is its revision, its key, the pair (null: it was deleted) and the pair before it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from itertools import count
from typing import Any

from dledger.etcdpb import kv_pb2
from dledger.etcdpb import rpc_pb2 as rpc
from dledger.kernels.store.register import Pair
from dledger.kernels.store.timeline import Change, Seen
from dledger.kernels.store.watches import Kind, Response, Watch
from jepsen.store.client import StoreClient
from jepsen.store.journal import History, Journal

WATCH, TOLD = "watch", "told"
OF_ALL = -1
"""The watch id in a response to all watches of a stream."""
FOREIGN = "latin-1"
"""Other keys and values than the workloads' own may be any bytes."""

_numbers = count(1)


class WatchStream:
    """``revision``: up to which all watches of the stream were told."""

    def __init__(self, client: StoreClient, node: str, journal: Journal, process: int) -> None:
        self._call = client.stream("Watch.Watch", node)
        self._node = node
        self._journal = journal
        self._process = process
        self._watches: dict[int, int] = {}
        """Their numbers in the history, by their ids on the stream."""
        self.revision = 0
        self.compact_revision = 0
        """Of the last watch that was cancelled as compacted."""

    @property
    def has_watches(self) -> bool:
        return bool(self._watches)

    async def create(self, request: rpc.WatchCreateRequest) -> None:
        """Raises RpcFailure."""
        number = next(_numbers)
        request.watch_id = len(self._watches) + 1
        self._watches[request.watch_id] = number
        self._journal.note(
            WATCH,
            watch=number,
            process=self._process,
            node=self._node,
            key=request.key.decode(FOREIGN),
            end=request.range_end.decode(FOREIGN),
            start=request.start_revision,
            before=request.prev_kv,
            no_puts=rpc.WatchCreateRequest.NOPUT in request.filters,
            no_deletes=rpc.WatchCreateRequest.NODELETE in request.filters,
        )
        await self._call.write(rpc.WatchRequest(create_request=request))

    async def request_progress(self) -> None:
        """Raises RpcFailure."""
        await self._call.write(rpc.WatchRequest(progress_request=rpc.WatchProgressRequest()))

    async def read(self, within_s: float) -> bool:
        """Takes one response. Returns whether one came in time. Raises RpcFailure when the stream broke."""
        try:
            async with asyncio.timeout(within_s):
                response = await self._call.read()
        except TimeoutError:
            return False
        if response is None:
            self._watches.clear()
            return False
        self._take(response)
        return True

    async def read_until_level(self, within_s: float) -> bool:
        """Asks for progress, and reads until it comes. Returns whether it came in time. Raises RpcFailure."""
        until_s = asyncio.get_running_loop().time() + within_s
        await self.request_progress()
        before = self.revision
        while self._watches and (left_s := until_s - asyncio.get_running_loop().time()) > 0:
            if await self.read(left_s) and self.revision > before:
                return True
        return False

    def close(self) -> None:
        self._call.cancel()

    def _take(self, response: rpc.WatchResponse) -> None:
        kind, revision = _kind_of(response), response.header.revision
        watches = list(self._watches.values()) if response.watch_id == OF_ALL else self._numbers(response)
        if kind is Kind.CANCELED:
            self._watches.pop(response.watch_id, None)
            self.compact_revision = revision = response.compact_revision
        elif kind is Kind.PROGRESS:
            self.revision = max(self.revision, revision)
        elif kind is Kind.EVENTS and len(self._watches) == 1 and not response.fragment:
            self.revision = max(self.revision, response.events[-1].kv.mod_revision)
        events = [_told_event(event) for event in response.events]
        for watch in watches:
            told = {"events": events, "fragment": response.fragment} if events else {}
            self._journal.note(TOLD, watch=watch, kind=kind.value, revision=revision, **told)

    def _numbers(self, response: rpc.WatchResponse) -> list[int]:
        number = self._watches.get(response.watch_id)
        return [] if number is None else [number]


def _kind_of(response: rpc.WatchResponse) -> Kind:
    if response.canceled:
        return Kind.CANCELED
    if response.created:
        return Kind.CREATED
    return Kind.EVENTS if response.events else Kind.PROGRESS


def _told_event(event: kv_pb2.Event) -> list[Any]:
    pair = None if event.type == kv_pb2.Event.DELETE else _told_pair(event.kv)
    before = _told_pair(event.prev_kv) if event.HasField("prev_kv") else None
    return [event.kv.mod_revision, event.kv.key.decode(FOREIGN), pair, before]


def _told_pair(pair: kv_pb2.KeyValue) -> list[Any]:
    return [pair.value.decode(FOREIGN), pair.create_revision, pair.mod_revision, pair.version]


# The history as the checks have it --------------------------------------------------------------------------------


def watches_of(history: History) -> Iterator[Watch]:
    responses: defaultdict[int, list[Response]] = defaultdict(list)
    for note in history.about(TOLD):
        told = note.told
        events = tuple(_seen(*event) for event in told.get("events", ()))
        is_fragment = told.get("fragment", False)
        responses[told["watch"]].append(Response(Kind(told["kind"]), told["revision"], events, is_fragment))
    for note in history.about(WATCH):
        told = note.told
        yield Watch(
            told["watch"],
            told["key"],
            told["end"],
            told["start"],
            tuple(responses[told["watch"]]),
            told["before"],
            told["no_puts"],
            told["no_deletes"],
        )


def _seen(revision: int, key: str, pair: list[Any] | None, before: list[Any] | None) -> Seen:
    return Seen(Change(revision, key, _pair(pair)), _pair(before))


def _pair(told: list[Any] | None) -> Pair | None:
    return None if told is None else Pair(*told)
