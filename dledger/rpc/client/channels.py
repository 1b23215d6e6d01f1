"""One gRPC channel per address, opened at first use, kept until the client is closed. All services share it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from dledger.common.resolver import Resolver
from dledger.rpc.client.cancellation import client_closed
from dledger.rpc.client.channel import Channel
from dledger.rpc.hops import DIRECTLY

if TYPE_CHECKING:
    from collections.abc import Callable

Stub = TypeVar("Stub")


class Endpoint:
    """One node's channel, and the stubs that were built on it.

    Its calls are not sent on to another node: what a node has refused, or left in doubt, is known of that node."""

    def __init__(self, address: str, resolver: Resolver) -> None:
        self.address = address
        self.closed = False
        self._channel = Channel(address, resolver=resolver, metadata=DIRECTLY)
        self._stubs: dict[Callable[[Channel], Any], Any] = {}

    def stub(self, factory: Callable[[Channel], Stub]) -> Stub:
        """What ``factory`` builds on this node's channel; built at the first call, the same object from then on."""
        stub: Stub | None = self._stubs.get(factory)
        if stub is None:
            stub = self._stubs[factory] = factory(self._channel)
        return stub

    async def close(self) -> None:
        """Ends every call at once."""
        self.closed = True
        await self._channel.close()


class Channels:
    """The endpoints in use, by address."""

    def __init__(self) -> None:
        self._endpoints: dict[str, Endpoint] = {}
        self._resolver = Resolver()
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
            endpoint = self._endpoints[address] = Endpoint(address, self._resolver)
        return endpoint

    async def close(self) -> None:
        """Closes every channel; calls under way end with SHUTTING_DOWN, and so does a later request for an endpoint."""
        self.closed = True
        endpoints, self._endpoints = list(self._endpoints.values()), {}
        for endpoint in endpoints:
            await endpoint.close()
