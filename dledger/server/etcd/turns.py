"""Keys that wait for their turn: of those below a prefix, the one that was created first has it.

::

    lock/                         the prefix
    lock/694d7a1f   created at 5  has its turn
    lock/694d7a22   created at 9  waits for the deletion of the one before
    lock/694d7a1c   created at 12 waits for the deletion of the one before

etcd's locks and elections are made of such keys, and its clients make them by themselves too. Each key is named after
the lease that it goes with, so a lease has one place at most.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import aclosing
from typing import NamedTuple

from dledger.common.errors import DLedgerError
from dledger.etcdpb import kv_pb2 as kv
from dledger.etcdpb import rpc_pb2 as rpc
from dledger.server.etcd.backend import StoreBackend
from dledger.server.etcd.carry_out import carry_out
from dledger.server.etcd.watch_here import watch_here
from dledger.server.etcd.while_led import while_led
from dledger.store.keys import prefix_end
from dledger.store.machine import Store
from dledger.store.quota import LEASE_COST_BYTES, cost_of_txn
from dledger.store.refusals import StoreRefused
from dledger.store.system import SYSTEM_PREFIX

logger = logging.getLogger(__name__)

OWN_TTL_S = 60
"""Of the lease that a caller without one is given: as etcd."""
LEAVE_WITHIN_S = 2.0
"""Nobody waits for it: the caller is gone."""


class PlaceLost(Exception):
    """The key of a place was deleted, or its lease has ended."""


class Place(NamedTuple):
    prefix: bytes
    key: bytes
    lease: int
    revision: int
    """At which the key was created."""
    header: rpc.ResponseHeader
    """Of the answer that said so."""
    found: bytes | None
    """The value of a key that was there before; None: it is new."""


async def take_place(backend: StoreBackend, name: bytes, lease: int, value: bytes = b"") -> Place:
    """The place that the lease has already, or else the last one. Raises StoreRefused."""
    lease = lease or await own_lease(backend)
    prefix = prefix_of(name)
    key = prefix + b"%x" % lease
    put = rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=value, lease=lease))
    look = rpc.RequestOp(request_range=rpc.RangeRequest(key=key))
    request = rpc.TxnRequest(compare=[created_at(key, 0)], success=[put], failure=[look])
    answer: rpc.TxnResponse = await carry_out(backend, request, cost_of_txn(request))
    if answer.succeeded:
        return Place(prefix, key, lease, answer.header.revision, answer.header, None)
    [found] = answer.responses[0].response_range.kvs
    return Place(prefix, key, lease, found.create_revision, answer.header, found.value)


async def wait_for_turn(backend: StoreBackend, place: Place) -> None:
    """A caller that is cancelled, or refused, leaves its place. Raises PlaceLost, and Refusal (NO_LEADER): then the
    place is kept for the caller's next attempt."""
    try:
        await while_led(backend, _wait(backend, place))
    except (asyncio.CancelledError, DLedgerError, StoreRefused):
        await _leave(backend, place)
        raise


async def _wait(backend: StoreBackend, place: Place) -> None:
    while True:
        if not _is_there(backend.store, place):
            raise PlaceLost
        before = _before(backend.store, place)
        if before is None:
            return
        await _deletion(backend, [before, place.key])
        await backend.barrier()  # what this node knew may be old, or it began anew meanwhile


async def _deletion(backend: StoreBackend, keys: Iterable[bytes]) -> None:
    """Of one of them; or what happened to them is not known any more."""
    start = backend.store.pairs.revision + 1
    no_puts = [rpc.WatchCreateRequest.NOPUT]
    requests = [rpc.WatchCreateRequest(key=key, start_revision=start, filters=no_puts) for key in keys]
    async with aclosing(watch_here(backend, requests)) as responses:
        await anext(responses)


async def _leave(backend: StoreBackend, place: Place) -> None:
    try:
        async with asyncio.timeout(LEAVE_WITHIN_S):
            await give_up(backend, place.key, place.revision)
    except (DLedgerError, StoreRefused, TimeoutError) as failure:
        logger.info("a waiting key stays until its lease ends", extra={"lease": place.lease, "why": failure})


async def give_up(backend: StoreBackend, key: bytes, revision: int) -> rpc.TxnResponse:
    """Deletes the key, unless it is another one by now. Raises StoreRefused."""
    delete = rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key))
    answer: rpc.TxnResponse = await carry_out(
        backend, rpc.TxnRequest(compare=[created_at(key, revision)], success=[delete])
    )
    return answer


async def own_lease(backend: StoreBackend) -> int:
    """A new one, of a minute."""
    granted = await carry_out(backend, rpc.LeaseGrantRequest(TTL=OWN_TTL_S), LEASE_COST_BYTES)
    return int(granted.ID)


def prefix_of(name: bytes) -> bytes:
    return name + b"/"


def created_at(key: bytes, revision: int) -> rpc.Compare:
    """0: the key does not exist."""
    return rpc.Compare(key=key, target=rpc.Compare.CREATE, result=rpc.Compare.EQUAL, create_revision=revision)


def waiting_below(prefix: bytes) -> list[tuple[bytes, bytes]]:
    """Where keys wait for their turn, as ``key`` and ``range_end``. The system's keys do not."""
    end = prefix_end(prefix)
    if not SYSTEM_PREFIX.startswith(prefix):
        return [(prefix, end)]
    return [(prefix, SYSTEM_PREFIX), (prefix_end(SYSTEM_PREFIX), end)]


def first_below(store: Store, prefix: bytes) -> kv.KeyValue | None:
    """The one that has its turn."""
    found = _by_creation(store, prefix, rpc.RangeRequest(sort_order=rpc.RangeRequest.ASCEND))
    return min(found, key=lambda each: each.create_revision, default=None)


def _is_there(store: Store, place: Place) -> bool:
    found = store.range(rpc.RangeRequest(key=place.key, keys_only=True)).kvs
    return bool(found) and found[0].create_revision == place.revision


def _before(store: Store, place: Place) -> bytes | None:
    """The key whose deletion the place waits for."""
    request = rpc.RangeRequest(
        sort_order=rpc.RangeRequest.DESCEND, max_create_revision=place.revision - 1, keys_only=True
    )
    found = _by_creation(store, place.prefix, request)
    newest = max(found, key=lambda each: each.create_revision, default=None)
    return None if newest is None else newest.key


def _by_creation(store: Store, prefix: bytes, request: rpc.RangeRequest) -> list[kv.KeyValue]:
    """The first of each range, in the order that the request says."""
    request.sort_target, request.limit = rpc.RangeRequest.CREATE, 1
    found: list[kv.KeyValue] = []
    for request.key, request.range_end in waiting_below(prefix):
        found.extend(store.range(request).kvs)
    return found
