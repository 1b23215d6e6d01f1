"""The system's own client: it makes, changes and removes groups in the directory, which is records of the store."""

from __future__ import annotations

import asyncio
from random import Random

from dledger.common.errors import DLedgerError
from dledger.common.types import Member, NodeId, Position
from dledger.etcdpb import rpc_pb2 as rpc
from dledger.server.meta.group_records import (
    GROUPS_PREFIX,
    GroupEntry,
    GroupMembers,
    change_txn,
    create_txn,
    entry_of,
    remove_txn,
)
from dledger.store.commands import command
from dledger.store.keys import prefix_end
from dledger.store.refusals import StoreRefused
from tests.simulation.clients import IsOver
from tests.simulation.groups import SimGroup
from tests.simulation.store.calls import Caller, Unknown
from tests.simulation.store.seat_store import THROUGH, SeatStore
from tests.simulation.store.store_truth import StoreTruth

NAMES = "orders", "events", "jobs"
PAUSE_S = 1.0


class SystemClient:
    def __init__(self, group: SimGroup, random: Random) -> None:
        assert isinstance(group.truth, StoreTruth)
        self._group = group
        self._truth = group.truth
        self._random = random
        self._caller = Caller(group, random)
        self._number = 0

    async def run(self, is_over: IsOver) -> None:
        while not is_over():
            known = await self._known()
            if known is not None:
                await self._change(known)
            await asyncio.sleep(self._random.expovariate(1 / PAUSE_S))

    async def _known(self) -> dict[str, GroupEntry] | None:
        seat = self._caller.seat()
        if seat is None:
            return None
        request = rpc.RangeRequest(key=GROUPS_PREFIX, range_end=prefix_end(GROUPS_PREFIX), serializable=True)

        async def read(store: SeatStore) -> rpc.RangeResponse:
            answer: rpc.RangeResponse = await store.kv.Range(request, THROUGH)
            return answer

        try:
            answer = await self._caller.call(seat, read, 2.0)
        except (Unknown, DLedgerError):
            return None
        self._truth.check_range(request, answer, 0, 0)
        return {entry.name: entry for entry in map(entry_of, answer.kvs)}

    async def _change(self, known: dict[str, GroupEntry]) -> None:
        seat, asked_s = self._caller.seat(), self._group.cluster.world.time()
        if seat is None:
            return
        given = command(self._txn(self._random.choice(NAMES), known), is_system=True)
        try:
            answer = await self._caller.call(seat, lambda store: store.backend.submit(given), 12.0)
        except (Unknown, DLedgerError, StoreRefused):
            return
        self._truth.check_answer(given, answer, asked_s)
        self._group.journal.appends += 1

    def _txn(self, name: str, known: dict[str, GroupEntry]) -> rpc.TxnRequest:
        seen = known.get(name)
        self._number += 1
        members = (Member(NodeId("n0"), "h0:1", voter=True), Member(NodeId(f"n{self._number}"), "h1:1", voter=False))
        if seen is None:
            return create_txn(name, members)
        if self._random.random() < 0.4:
            return remove_txn(seen)
        return change_txn(seen, seen._replace(known=GroupMembers(members, Position(self._number))))
