"""A client of the store: one call at a time, by etcd's API, at one node or at all of them in turn.

One that goes round leaves a node after some calls. It leaves a node without an answer at once, and keeps away from it
for a moment: else every client would soon wait at the one node that is stopped. One that is at home somewhere asks that
node alone, and so meets it again right after it was cut off, stopped or killed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dledger.client.stubs import ServiceStub
from dledger.etcdpb import rpc_pb2 as rpc
from dledger.rpc.client.channel import Channel
from dledger.rpc.client.rpc_failure import RpcFailure
from jepsen.store.outcomes import Answered, Outcome, Refused, Unknown, outcome_of

CALLS_AT_A_NODE = 20
AVOIDED_S = 3.0
"""A node without an answer is left out for so long, unless all are."""
PAUSE_S = 0.05
"""After a call that was not sent: nobody tells when there is a listener again."""
NO_ANSWER = "the stream ended without an answer"
SERVICES = ("KV", "Watch", "Lease", "Cluster", "Maintenance")


class Asked(NamedTuple):
    """A call that has ended."""

    node: str
    outcome: Outcome


class StoreClient:
    def __init__(
        self, nodes: Mapping[str, str], timeout_s: float, chance: random.Random, *, home: str | None = None
    ) -> None:
        """``nodes``: addresses by name. ``home``: the only node to be asked; None: all in turn."""
        self._names = list(nodes) if home is None else [home]
        self._channels = {name: Channel(nodes[name]) for name in self._names}
        self._stubs = {name: _stubs(channel) for name, channel in self._channels.items()}
        self._timeout_s = timeout_s
        self._avoided_until_s = dict.fromkeys(self._names, 0.0)
        self._loop = asyncio.get_running_loop()
        self._at = chance.randrange(len(self._names))
        self._calls = 0

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()

    @property
    def node(self) -> str:
        """The node for the next call."""
        if self._calls >= CALLS_AT_A_NODE:
            self.move_on()
        return self._names[self._at]

    def move_on(self) -> None:
        """To the next node that has answered of late."""
        self._calls = 0
        now_s = self._loop.time()
        names = self._names
        onward = [(self._at + step) % len(names) for step in range(1, len(names) + 1)]
        self._at = next((place for place in onward if self._avoided_until_s[names[place]] <= now_s), onward[0])

    def avoid(self, node: str) -> None:
        """It gave no answer."""
        self._avoided_until_s[node] = self._loop.time() + AVOIDED_S
        if self._names[self._at] == node:
            self.move_on()

    async def call(self, method: str, request: Any, *, node: str | None = None) -> Asked:
        """``method``: as in "KV.Put". ``node``: that one, instead of the one whose turn it is."""
        asked = node or self.node
        self._calls += 1
        try:
            answer = await self._stubs[asked][method](request, timeout=self._timeout_s)
        except RpcFailure as failure:
            return await self._ended(asked, failure)
        return Asked(asked, Answered(answer))

    async def ask_stream(self, method: str, request: Any) -> Asked:
        """One request, and its answer, on a stream of its own."""
        asked = self.node
        self._calls += 1
        stream = self._stubs[asked][method](timeout=self._timeout_s)
        try:
            await stream.write(request)
            answer = await stream.read()
        except RpcFailure as failure:
            return await self._ended(asked, failure)
        finally:
            stream.cancel()
        return Asked(asked, Unknown(NO_ANSWER) if answer is None else Answered(answer))

    async def _ended(self, node: str, failure: RpcFailure) -> Asked:
        outcome = outcome_of(failure)
        if not isinstance(outcome, Refused) or not failure.was_sent:
            self.avoid(node)
        if not failure.was_sent:
            await asyncio.sleep(PAUSE_S)
        return Asked(node, outcome)

    def stream(self, method: str, node: str) -> Any:
        """A stream of requests and answers at that node, without an end in time."""
        return self._stubs[node][method]()


def _stubs(channel: Channel) -> dict[str, Callable[..., Any]]:
    methods: dict[str, Callable[..., Any]] = {}
    for name in SERVICES:
        service = rpc.DESCRIPTOR.services_by_name[name]
        stub = ServiceStub(channel, service)
        methods |= {f"{name}.{method.name}": getattr(stub, method.name) for method in service.methods}
    return methods
