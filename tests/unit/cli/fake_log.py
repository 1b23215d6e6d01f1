"""A log in memory behind the client's interface: what commands do with answers and refusals, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Self

from dledger.batch import build_body
from dledger.client import Acks, AckSpan, Batch, ClusterStatus, NodeStatus
from dledger.errors import Code, DLedgerError, error
from dledger.types import Ack, Consistency, Entry

TIMESTAMP_MS = 1_000


class FakeAdmin:
    """Every operation succeeds, until ``refusals`` has one for it; ``calls`` tells what was asked for."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    async def transfer_leadership(self, to: str | None) -> tuple[str, int]:
        self.calls.append(("transfer", to))
        return to or "n1", 4


class FakeLog:
    """Appends succeed, until ``refusals`` has one for the call; ``reads`` tells how it was read."""

    def __init__(self, records: Sequence[bytes] = (), status: ClusterStatus | None = None) -> None:
        self.records = list(records)
        self.refusals: dict[int, DLedgerError] = {}
        self.reads: list[dict[str, Any]] = []
        self.endpoints = ""
        self.admin = FakeAdmin()
        self._status = status or healthy()
        self._calls = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    def append_many(self, records: Sequence[bytes]) -> asyncio.Future[Acks]:
        answer: asyncio.Future[Acks] = asyncio.get_running_loop().create_future()
        if refusal := self.refusals.get(self._calls):
            answer.get_loop().call_soon(answer.set_exception, refusal)
        else:
            acks = Acks([AckSpan(len(self.records), len(records), 3, TIMESTAMP_MS)])
            self.records += records
            answer.get_loop().call_soon(answer.set_result, acks)
        self._calls += 1
        return answer

    async def append(self, record: bytes) -> Ack:
        return (await self.append_many([record]))[0]

    async def get(
        self, index: int, consistency: Consistency = Consistency.LINEARIZABLE, *, node: str | None = None
    ) -> Entry:
        await asyncio.sleep(0)
        return Entry(index, 3, TIMESTAMP_MS + index, self.records[index])

    async def bounds(self) -> tuple[int, int]:
        return 0, len(self.records) - 1

    async def status(self) -> ClusterStatus:
        return self._status

    async def read_batches(self, start: int, end: int | None, **how: Any) -> AsyncGenerator[Batch]:
        self.reads.append(how)
        for index in range(start, len(self.records) if end is None else end):
            yield Batch(index, 1, 3, TIMESTAMP_MS, build_body([self.records[index]]))


class Unreachable(FakeLog):
    """Nobody answers."""

    async def status(self) -> ClusterStatus:
        raise error(Code.NETWORK_ERROR, "no endpoint answers: is the cluster up?")


def node(node_id: str, role: str, *, reachable: bool = True, commit_index: int = -1) -> NodeStatus:
    """A node as the status tells of it."""
    return NodeStatus(
        node_id, f"{node_id}:1", role=role, term=3, commit_index=commit_index, chain="00ff", reachable=reachable
    )


def healthy() -> ClusterStatus:
    """n1 leads, n2 cannot be reached."""
    nodes = (node("n0", "follower", commit_index=1), node("n1", "leader"), node("n2", "unknown", reachable=False))
    return ClusterStatus("default", 3, "n1", "c1", nodes)
