"""A client with watches: on any node, over streams that end and begin again elsewhere, at times too slow for them."""

from __future__ import annotations

import asyncio
from random import Random

from dledger.etcdpb import rpc_pb2 as rpc
from dledger.store.keys import prefix_end
from tests.simulation.groups import SimGroup
from tests.simulation.store.calls import Caller
from tests.simulation.store.kv_client import KEY_PREFIX, KEYS, LIST_PREFIX
from tests.simulation.store.lease_client import LEASE_PREFIX
from tests.simulation.store.session_client import SESSION_PREFIX
from tests.simulation.store.store_truth import StoreTruth
from tests.simulation.store.watch_call import WatchCall
from tests.simulation.store.watched import NODELETE, NOPUT, Watched

WATCHES = 4
SLOW_SHARE = 0.3
"""Of the streams."""
LOOK_S = 0.2
FUTURE_SHARE = 0.1
"""Of the watches that begin anew: at a revision that is not there yet."""
PAST_SHARE = 0.4


class WatchClient:
    def __init__(self, name: str, group: SimGroup, random: Random) -> None:
        assert isinstance(group.truth, StoreTruth)
        self._name = name
        self._group = group
        self._truth = group.truth
        self._trace = group.cluster.trace
        self._random = random
        self._caller = Caller(group, random)
        self._watches = [Watched(f"{name}.{at}", group.truth, self._what()) for at in range(WATCHES)]
        self._call: WatchCall | None = None

    def _what(self) -> rpc.WatchCreateRequest:
        random = self._random
        of = rpc.WatchCreateRequest(prev_kv=random.random() < 0.4, progress_notify=random.random() < 0.4)
        kind = random.random()
        if kind < 0.3:
            of.key = b"%s%d" % (KEY_PREFIX, random.randrange(KEYS))
        elif kind < 0.6:
            of.key = random.choice((KEY_PREFIX, LIST_PREFIX, SESSION_PREFIX, LEASE_PREFIX))
            of.range_end = prefix_end(of.key)
        elif kind < 0.8:
            of.key, of.range_end = b"\0", b"\0"
        else:
            of.key, of.range_end = b"k3", b"l2"
        if random.random() < 0.2:
            of.filters.append(random.choice((NODELETE, NOPUT)))
        of.fragment = random.random() < 0.3
        return of

    @property
    def is_level(self) -> bool:
        return all(watched.is_level for watched in self._watches)

    async def run(self) -> None:
        """For ever."""
        while True:
            await self._stream()
            await asyncio.sleep(self._random.expovariate(5))

    async def _stream(self) -> None:
        """One, until it ends or the client closes it."""
        seat = self._caller.seat()
        life = None if seat is None else seat.host.present_life
        if life is None or life.store is None or not life.store.is_open:
            return
        slow_s = self._random.choice((0.1, 0.5)) if self._random.random() < SLOW_SHARE else 0.0
        call = self._call = WatchCall(life, life.store, self._random, self._take, slow_s)
        for watch_id, watched in enumerate(self._watches, 1):
            self._begin(watched)
            call.send(watched.request(watch_id))
        until_s = self._group.cluster.world.time() + self._random.choice((0.5, 3.0, 10.0))
        while not call.ended.is_set() and self._group.cluster.world.time() < until_s:
            await asyncio.sleep(self._random.uniform(0, 2 * LOOK_S))
            if self._random.random() < 0.1:
                call.send(rpc.WatchRequest(progress_request=rpc.WatchProgressRequest()))
            self._begin_again(call)
        self._trace.hit("branch watch ended" if call.ended.is_set() else "branch watch closed", self._name)
        call.close()

    def _begin(self, watched: Watched) -> None:
        if watched.next_revision:
            return
        share = self._random.random()
        if share < FUTURE_SHARE:
            watched.start_at(self._truth.revision + self._random.randrange(1, 8))
        elif share < PAST_SHARE:
            watched.start_at(max(1, self._truth.revision - self._random.randrange(40)))

    def _begin_again(self, call: WatchCall) -> None:
        """Those that were cancelled."""
        for watch_id, watched in enumerate(self._watches, 1):
            if watched.was_cancelled:
                self._begin(watched)
                call.send(watched.request(watch_id))

    def _take(self, response: rpc.WatchResponse) -> None:
        if response.events:
            self._trace.hit("branch watch told")
        if response.watch_id < 0:
            self._trace.hit("branch watch progress asked for")
            for watched in self._watches:
                if watched.is_created:
                    watched.progress(response.header.revision)
            return
        watched = self._watches[response.watch_id - 1]
        if response.canceled:
            self._trace.hit("branch watch compacted", watched.name, response.compact_revision)
        elif response.fragment:
            self._trace.hit("branch watch fragment")
        watched.take(response)
        self._trace.note("watched", watched.name, watched.next_revision)
