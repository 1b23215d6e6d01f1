"""A copy of the store as of one revision, as one node streams it."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from dledger.client.store.refusals import store_error
from dledger.client.store.stubs import StoreStubs
from dledger.common.errors import Code, Unavailable, error
from dledger.etcdpb import rpc_pb2 as rpc
from dledger.rpc.client.call_loop import CallLoop
from dledger.rpc.client.rpc_failure import RpcFailure

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncGenerator

    from dledger.client.store.nodes import StoreNodes
    from dledger.rpc.client.channels import Endpoint

DIGEST_BYTES = sha256().digest_size


class _Stream:
    """Of one node."""

    def __init__(self, endpoint: Endpoint, timeout_ms: float) -> None:
        self._address = endpoint.address
        self._timeout_ms = timeout_ms
        self._call: Any = endpoint.stub(StoreStubs).maintenance.Snapshot(rpc.SnapshotRequest())

    async def read(self) -> bytes | None:
        """The next blob; None behind the last one. Raises Unavailable and so on, TIMEOUT if none comes."""
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                answer = await self._call.read()
        except TimeoutError:
            raise error(Code.TIMEOUT, f"{self._address} stopped sending the copy") from None
        except RpcFailure as failure:
            raise store_error(failure, self._address) from failure
        return None if answer is None else answer.blob

    def close(self) -> None:
        self._call.cancel()


async def backup(nodes: StoreNodes, timeout_ms: float, rng: random.Random) -> AsyncGenerator[bytes]:
    """Its bytes. The last 32 are the digest of all before: raises CORRUPT_LOG behind them if they are not. Raises
    Unavailable if the node is gone in between: then a copy has to be begun anew. ``timeout_ms``: for each blob."""

    async def begin(endpoint: Endpoint, attempt_ms: float) -> tuple[_Stream, bytes]:
        stream = _Stream(endpoint, attempt_ms)
        try:
            first = await stream.read()
        except BaseException:
            stream.close()
            raise
        if first is None:
            raise Unavailable(f"{endpoint.address} sent no copy")
        return stream, first

    stream, blob = await CallLoop(timeout_ms, rng).ask(nodes, nodes.find, begin, attempt_ms=timeout_ms)
    digest, tail = sha256(), b""
    try:
        found: bytes | None = blob
        while found is not None:
            tail += found
            digest.update(tail[:-DIGEST_BYTES])
            tail = tail[-DIGEST_BYTES:]
            yield found
            found = await stream.read()
    finally:
        stream.close()
    if digest.digest() != tail:
        raise error(Code.CORRUPT_LOG, "the copy's bytes are not those that its node made it of: make another")
