"""``dledger.Node``: a member of a cluster inside your own program.

The node serves clients at its port, as ``dledger serve`` does. Through this port the other nodes send calls on to their
leader, and any client reaches the log. The program's own calls are sent on too when another node leads.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from dledger.common.config import NodeConfig
from dledger.common.errors import DLedgerError
from dledger.common.types import Ack, Consistency, Entry
from dledger.server import cluster_node
from dledger.server.client_port import ClientPort
from dledger.server.forwarding import IN_PROCESS, RefusedCall
from dledger.v1 import log_pb2

_ON_THE_WIRE = {
    Consistency.LINEARIZABLE: log_pb2.CONSISTENCY_LINEARIZABLE,
    Consistency.COMMITTED: log_pb2.CONSISTENCY_COMMITTED,
}


class Node(cluster_node.Node):
    """``async with Node(config) as node``, or ``start`` and ``stop``.

    With ``serves_clients=False`` the node listens on its port for nodes alone. While it leads, the other nodes refuse
    calls with NOT_LEADER. It sends on its own calls all the same.
    """

    def __init__(self, config: NodeConfig, *, serves_clients: bool = True, **replaced: Any) -> None:
        super().__init__(config, **replaced)
        self._serves_clients = serves_clients
        self._port: ClientPort | None = None

    async def join(self) -> None:
        """As of every node; it serves clients from then on. Raises CONFIG_ERROR for a port in use, too."""
        if self._serves_clients:  # taken before it joins: a node that nobody can ask must not stand for election
            self._port = await ClientPort.take(self)
        await super().join()
        if self._port is not None:
            await self._port.open()

    async def stop(self) -> None:
        """As of every node. The node tells clients first, so they move to the next leader."""
        port, self._port = self._port, None
        try:
            if port is not None:
                await self.leave()
                await port.close()
        finally:
            await super().stop()

    # The log, for the program; another node answers where this one may not ---------------------------------------

    async def append_many(
        self, records: Sequence[bytes], *, expect_index: int | None = None, group: str = ""
    ) -> list[Ack]:
        try:
            return await super().append_many(records, expect_index=expect_index, group=group)
        except DLedgerError as refusal:
            request = log_pb2.AppendRequest(group=group, records=records, expect_index=expect_index)
            refused = RefusedCall("Append", group, refusal, IN_PROCESS)
            result = await self.forwarder.unary(refused, request, log_pb2.AppendResponse)
        return [Ack(result.base_index + ordinal, result.term, result.timestamp_ms) for ordinal in range(result.count)]

    async def get(self, index: int, consistency: Consistency = Consistency.LINEARIZABLE, *, group: str = "") -> Entry:
        try:
            return await super().get(index, consistency, group=group)
        except DLedgerError as refusal:
            request = log_pb2.GetRequest(group=group, index=index, consistency=_ON_THE_WIRE[consistency])
            refused = RefusedCall("Get", group, refusal, IN_PROCESS)
            found = await self.forwarder.unary(refused, request, log_pb2.GetResponse)
        return _entry(found.entry)

    async def read(
        self,
        start: int = 0,
        *,
        follow: bool = False,
        consistency: Consistency = Consistency.LINEARIZABLE,
        group: str = "",
    ) -> AsyncGenerator[Entry, None]:
        has_begun = False
        try:
            async with aclosing(super().read(start, follow=follow, consistency=consistency, group=group)) as entries:
                async for entry in entries:
                    has_begun = True
                    yield entry
        except DLedgerError as refusal:
            if has_begun:
                raise
            request = log_pb2.ReadRecordsRequest(
                group=group, start_index=start, follow=follow, consistency=_ON_THE_WIRE[consistency]
            )
            refused = RefusedCall("ReadRecords", group, refusal, IN_PROCESS)
            async with aclosing(self.forwarder.read(refused, request)) as answers:
                async for answer in answers:
                    yield _entry(log_pb2.ReadRecordsResponse.FromString(answer).entry)


def _entry(entry: log_pb2.Entry) -> Entry:
    return Entry(entry.index, entry.term, entry.timestamp_ms, entry.value)
