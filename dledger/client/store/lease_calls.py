"""The calls of the store that are about leases."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dledger.client.store.lease import Kept
from dledger.client.store.refusals import store_error
from dledger.client.store.results import LeaseTimes
from dledger.client.store.stubs import StoreStubs
from dledger.common.errors import Code, DLedgerError, Unavailable, error
from dledger.etcdpb import rpc_pb2 as rpc
from dledger.rpc.client.call_loop import CallLoop
from dledger.rpc.client.rpc_failure import RpcFailure

if TYPE_CHECKING:
    import random

    from dledger.client.store.nodes import StoreNodes
    from dledger.client.store.reader import Reader
    from dledger.client.store.writer import Writer
    from dledger.rpc.client.channels import Endpoint

ATTEMPTS = 4
"""Nodes that can be tried one after the other before a keepalive's time is up."""
MOST_ATTEMPT_MS = 3_000.0


class StoreLeaseCalls:
    def __init__(
        self, nodes: StoreNodes, reader: Reader, writer: Writer, timeout_ms: float, rng: random.Random
    ) -> None:
        self._nodes = nodes
        self._reader = reader
        self._writer = writer
        self._timeout_ms = timeout_ms
        self._rng = rng
        self._loop = asyncio.get_running_loop()

    async def grant(self, ttl_s: int, timeout_ms: float | None = None, lease_id: int = 0) -> Kept:
        """Raises NoSpace, OutcomeUnknown and so on: see ``Store``. ``lease_id``: 0, the store chooses."""
        sent_s = self._loop.time()
        request = rpc.LeaseGrantRequest(TTL=ttl_s, ID=lease_id)
        answer: rpc.LeaseGrantResponse = await self._writer.submit(
            "lease_grant", request, timeout_ms or self._timeout_ms
        )
        return Kept(answer.ID, answer.TTL, sent_s)

    async def revoke(self, lease_id: int, timeout_ms: float | None = None) -> None:
        """Raises LeaseNotFound, OutcomeUnknown and so on."""
        request = rpc.LeaseRevokeRequest(ID=lease_id)
        await self._writer.submit("lease_revoke", request, timeout_ms or self._timeout_ms)

    async def keep_alive(self, lease_id: int, timeout_ms: float) -> Kept:
        """Raises LeaseNotFound when the store surely has no such lease, Unavailable or DeadlineExceeded otherwise."""
        sent_s = 0.0

        async def call(endpoint: Endpoint, attempt_ms: float) -> rpc.LeaseKeepAliveResponse:
            nonlocal sent_s
            sent_s = self._loop.time()
            return await _keep_alive(endpoint, lease_id, attempt_ms)

        loop = CallLoop(timeout_ms, self._rng)
        attempt_ms = min(MOST_ATTEMPT_MS, timeout_ms / ATTEMPTS)
        answer = await loop.ask(self._nodes, self._nodes.find, call, attempt_ms=attempt_ms)
        if answer.TTL <= 0:
            raise _not_found(lease_id)
        return Kept(lease_id, answer.TTL, sent_s)

    async def times(self, lease_id: int, *, keys: bool, timeout_ms: float) -> LeaseTimes:
        """Raises LeaseNotFound."""
        request = rpc.LeaseTimeToLiveRequest(ID=lease_id, keys=keys)
        answer = await self._reader.ask(lambda stubs: stubs.lease.LeaseTimeToLive, request, timeout_ms)
        if answer.TTL < 0:
            raise _not_found(lease_id)
        return LeaseTimes(lease_id, answer.grantedTTL, answer.TTL, tuple(answer.keys))

    async def all(self, timeout_ms: float) -> list[int]:
        request = rpc.LeaseLeasesRequest()
        answer = await self._reader.ask(lambda stubs: stubs.lease.LeaseLeases, request, timeout_ms)
        return [each.ID for each in answer.leases]


def _not_found(lease_id: int) -> DLedgerError:
    return error(Code.LEASE_NOT_FOUND, f"the store has no lease {lease_id:x}: it expired or was revoked; grant another")


async def _keep_alive(endpoint: Endpoint, lease_id: int, timeout_ms: float) -> rpc.LeaseKeepAliveResponse:
    """Asks one node, once."""
    call = endpoint.stub(StoreStubs).lease.LeaseKeepAlive(timeout=timeout_ms / 1000)
    try:
        await call.write(rpc.LeaseKeepAliveRequest(ID=lease_id))
        await call.done_writing()
        answer: rpc.LeaseKeepAliveResponse | None = await call.read()
    except RpcFailure as failure:
        raise store_error(failure, endpoint.address) from failure
    finally:
        call.cancel()
    if answer is None:
        raise Unavailable(f"{endpoint.address} ended the stream without an answer")
    return answer
