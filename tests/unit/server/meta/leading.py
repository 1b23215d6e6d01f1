"""A node that leads `meta`, or not, and a store that is applied to at once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from dledger.common.config import Timings
from dledger.common.errors import Code, error
from dledger.common.types import Consistency
from dledger.etcdpb import rpc_pb2 as rpc
from dledger.store.commands import command
from dledger.store.machine import Store

TIMINGS = Timings()
ELECTION_S = TIMINGS.election_timeout_max_ms / 1000


class Leading:
    """Stands for a replica and a runner."""

    def __init__(self) -> None:
        self.store = Store()
        self.term = 1
        self.leads = True
        self.config = SimpleNamespace(timings=TIMINGS)
        self.confirmations = 0
        self.submitted: list[tuple[bytes, int]] = []
        self.refusal: Exception | None = None
        """Of the next command."""
        self.is_held = False
        """Commands wait for ``go_on``."""
        self.go_on = asyncio.Event()

    # As a runner -------------------------------------------------------------------------------------------------

    @property
    def machine(self) -> Any:
        """The store; or what a replica tells of its state machine: one object stands for both."""
        return self.store

    async def wait_applied(self, index: int) -> None:
        """Everything is."""

    async def submit(self, payload: bytes, *, version: int = 0, term: int = 0) -> Any:
        self.submitted.append((payload, term))
        if self.is_held:
            await self.go_on.wait()
        if self.refusal is not None:
            refusal, self.refusal = self.refusal, None
            raise refusal
        if term not in (0, self.term):
            raise error(Code.NOT_LEADER, "the term of the command is over")
        return self.store.decode_answer(self.store.apply(payload))

    def grant(self, lease_id: int, ttl_s: int) -> None:
        self.store.apply(command(rpc.LeaseGrantRequest(ID=lease_id, TTL=ttl_s)))

    def put(self, key: bytes) -> None:
        self.store.apply(command(rpc.PutRequest(key=key)))


class LeadingReplica:
    def __init__(self, leading: Leading) -> None:
        self._leading = leading
        self.config = leading.config
        self.machine = self
        self.reader = self

    @property
    def term(self) -> int:
        return self._leading.term

    @property
    def is_serving(self) -> bool:
        return self._leading.leads

    def check_serving(self) -> None:
        if not self._leading.leads:
            raise error(Code.NOT_LEADER, "another node leads")

    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    async def read_point(self, _: Consistency) -> Any:
        self.check_serving()
        self._leading.confirmations += 1
        return SimpleNamespace(commit_index=7)
