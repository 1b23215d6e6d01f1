"""One gRPC channel per address, opened at first use, kept until the client is closed. All services share it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from grpc import aio

from dledger.rpc.client.cancellation import client_closed

if TYPE_CHECKING:
    from collections.abc import Callable

Stub = TypeVar("Stub")

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    # A message is bounded by what we ask for and by the server's limits, not by gRPC's 4 MiB.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_http_proxy", 0),
    # A channel of our own: another client of this process, or one that was closed, shares nothing with us.
    ("grpc.use_local_subchannel_pool", 1),
    # A peer that is gone without a word (a cut cable, a stopped process) ends its streams after keepalive + timeout.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.http2.max_pings_without_data", 0),
    # A node that comes back is found within a second; while it is away calls to it fail at once.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)

SETTLE_S = 0.01
"""gRPC's thread tells the loop of every call that was cancelled, and has no word for "that was all". A loop that closes
sooner leaves it to other loops of the process, which print a traceback for each."""


class Endpoint:
    """One node's channel, and the stubs that were built on it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.closed = False
        self._channel = aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        self._stubs: dict[Callable[[aio.Channel], Any], Any] = {}

    def stub(self, factory: Callable[[aio.Channel], Stub]) -> Stub:
        """What ``factory`` builds on this node's channel; built at the first call, the same object from then on."""
        stub: Stub | None = self._stubs.get(factory)
        if stub is None:
            stub = self._stubs[factory] = factory(self._channel)
        return stub

    async def close(self) -> None:
        """Ends every call at once."""
        self.closed = True
        await self._channel.close(None)


class Channels:
    """The endpoints in use, by address."""

    def __init__(self) -> None:
        self._endpoints: dict[str, Endpoint] = {}
        self.closed = False

    def check_open(self) -> None:
        """Raises SHUTTING_DOWN once the client was closed."""
        if self.closed:
            raise client_closed()

    def at(self, address: str) -> Endpoint:
        """The endpoint of ``address``. Nothing is connected before the first call. Raises SHUTTING_DOWN."""
        self.check_open()
        endpoint = self._endpoints.get(address)
        if endpoint is None:
            endpoint = self._endpoints[address] = Endpoint(address)
        return endpoint

    async def close(self) -> None:
        """Closes every channel; calls under way end with SHUTTING_DOWN, and so does whoever asks for an endpoint."""
        self.closed = True
        endpoints, self._endpoints = list(self._endpoints.values()), {}
        for endpoint in endpoints:
            await endpoint.close()
        if endpoints:
            await asyncio.sleep(SETTLE_S)
