"""A client of etcd's KV service: puts, deletes, transactions, reads of the present and the past, compactions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random

from google.protobuf.message import Message

from dledger.common.errors import DLedgerError
from dledger.etcdpb import kv_pb2 as kv
from dledger.etcdpb import rpc_pb2 as rpc
from dledger.store.commands import Request, command
from dledger.store.keys import prefix_end
from dledger.store.refusals import StoreRefused
from tests.simulation.clients import IsOver
from tests.simulation.groups import SimGroup
from tests.simulation.seat import Seat
from tests.simulation.store.calls import Caller, Unknown
from tests.simulation.store.seat_store import THROUGH, SeatStore
from tests.simulation.store.store_truth import StoreTruth, Told

KEYS = 10
LISTS = 4
LONGEST = 12
"""Of a list; then it begins anew."""
KEY_PREFIX, LIST_PREFIX = b"k", b"l"
PAUSE_S = 0.1
AT_ONCE = 8


class KvClient:
    def __init__(self, name: str, group: SimGroup, random: Random, *, pace: float = 1.0) -> None:
        assert isinstance(group.truth, StoreTruth)
        self._name = name
        self._group = group
        self._truth = group.truth
        self._trace = group.cluster.trace
        self._random = random
        self._pace = pace
        self._caller = Caller(group, random)
        self._number = 0
        self._seen: dict[bytes, kv.KeyValue] = {}
        """What was read last, by key; maybe long ago."""
        self.acknowledged = 0
        kinds = (
            (10, self._put),
            (3, self._delete),
            (4, self._swap),
            (5, self._append),
            (8, self._read),
            (4, self._read_past),
            (2, self._read_txn),
            (2, self._hash),
            (1, self._compact),
        )
        self._kinds = [kind for _, kind in kinds]
        self._weights = [weight for weight, _ in kinds]

    async def run(self, is_over: IsOver) -> None:
        async with asyncio.TaskGroup() as under_way:
            while not is_over():
                if len(under_way._tasks) < AT_ONCE:
                    under_way.create_task(self._step(), name=self._name)
                await asyncio.sleep(self._random.expovariate(self._pace / PAUSE_S))

    async def _step(self) -> None:
        seat = self._caller.seat()
        if seat is not None:
            (kind,) = self._random.choices(self._kinds, self._weights)
            await kind(seat)

    # Writes ------------------------------------------------------------------------------------------------------

    async def _put(self, seat: Seat) -> None:
        await self.put(seat, self._key(), prev_kv=self._random.random() < 0.2)

    async def put(self, seat: Seat, key: bytes, *, prev_kv: bool = False) -> None:
        request = rpc.PutRequest(key=key, value=self._tag(), prev_kv=prev_kv)
        await self._write(seat, request, lambda store: store.kv.Put(request, THROUGH), is_tagged=True)

    async def _delete(self, seat: Seat) -> None:
        request = rpc.DeleteRangeRequest(key=self._key(), prev_kv=self._random.random() < 0.3)
        if self._random.random() < 0.3:
            request.range_end = self._key()
        await self._write(seat, request, lambda store: store.kv.DeleteRange(request, THROUGH))

    async def _swap(self, seat: Seat) -> None:
        """A compare-and-set, by what was seen of a key."""
        key, put_to = self._key(), self._key()
        seen = self._seen.get(key)
        compare = rpc.Compare(key=key, target=rpc.Compare.MOD, result=rpc.Compare.EQUAL)
        compare.mod_revision = seen.mod_revision if seen is not None else 0
        put = rpc.RequestOp(request_put=rpc.PutRequest(key=put_to, value=self._tag()))
        read = rpc.RequestOp(request_range=rpc.RangeRequest(key=KEY_PREFIX, range_end=prefix_end(KEY_PREFIX)))
        delete = rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key))
        request = rpc.TxnRequest(compare=[compare], success=[put, read], failure=[read])
        if put_to != key and self._random.random() < 0.3:
            request.success.insert(0, delete)
        await self._write(seat, request, lambda store: store.kv.Txn(request, THROUGH), is_tagged=True)

    async def _append(self, seat: Seat) -> None:
        """To several lists at once, if nobody else did meanwhile."""
        of = rpc.RangeRequest(key=LIST_PREFIX, range_end=prefix_end(LIST_PREFIX))
        lists = await self._range(seat, of)
        if lists is None:
            return
        known = {each.key: each for each in lists.kvs}
        tag, request = self._tag(), rpc.TxnRequest()
        for at in self._random.sample(range(LISTS), self._random.randint(1, 3)):
            key = b"%s%d" % (LIST_PREFIX, at)
            pair = known.get(key)
            compare = request.compare.add(key=key, target=rpc.Compare.MOD, result=rpc.Compare.EQUAL)
            compare.mod_revision = pair.mod_revision if pair is not None else 0
            before = pair.value.split(b",") if pair is not None else []
            items = [*before, tag] if len(before) < LONGEST else [tag]
            put = rpc.PutRequest(key=key, value=b",".join(items))
            request.success.append(rpc.RequestOp(request_put=put))
        await self._write(seat, request, lambda store: store.kv.Txn(request, THROUGH), is_tagged=True)

    async def _compact(self, seat: Seat) -> None:
        revision = self._random.randint(max(1, self._truth.revision - 40), self._truth.revision + 1)
        request = rpc.CompactionRequest(revision=revision)
        await self._write(seat, request, lambda store: store.kv.Compact(request, THROUGH))

    async def _write(
        self,
        seat: Seat,
        request: Request,
        work: Callable[[SeatStore], Awaitable[Message]],
        *,
        is_tagged: bool = False,
    ) -> None:
        """``is_tagged``: no other request is the same."""
        given, asked_s = command(request), self._group.cluster.world.time()
        if is_tagged:
            self._truth.given_once.add(given)
        try:
            told: Told = await self._caller.call(seat, work, self._patience_s())
        except Unknown:
            self._trace.hit("branch store write unknown", self._name)
            return
        except StoreRefused as refusal:
            told = refusal
            self._trace.hit(f"branch store {refusal.code.name}")
        except DLedgerError:
            self._truth.refuse(given)
            return
        self._truth.check_answer(given, told, asked_s)
        self._trace.note("written", self._name, seat.name, self._number)
        self.acknowledged += 1
        self._group.journal.appends += 1

    # Reads -------------------------------------------------------------------------------------------------------

    async def _read(self, seat: Seat) -> None:
        request = rpc.RangeRequest(key=self._key(), serializable=self._random.random() < 0.3)
        if self._random.random() < 0.5:
            request.key, request.range_end = KEY_PREFIX, prefix_end(KEY_PREFIX)
        answer = await self._range(seat, request)
        if answer is not None:
            self._seen.update((each.key, each) for each in answer.kvs)

    async def _read_past(self, seat: Seat) -> None:
        revision = self._truth.revision + self._random.randint(-60, 1)
        request = rpc.RangeRequest(key=KEY_PREFIX, range_end=prefix_end(KEY_PREFIX), revision=max(1, revision))
        request.serializable = self._random.random() < 0.3
        await self._range(seat, request)

    async def _range(self, seat: Seat, request: rpc.RangeRequest) -> rpc.RangeResponse | None:
        least = 0 if request.serializable else self._truth.revision
        compacted = 0 if request.serializable else self._truth.compact_revision
        try:
            answer = await self._caller.call(seat, partial(_read, request), self._patience_s())
        except (Unknown, DLedgerError):
            return None
        except StoreRefused as refusal:
            self._trace.hit(f"branch store read {refusal.code.name}")
            self._truth.check_read_refused(request, refusal, least)
            return None
        self._truth.check_range(request, answer, least, compacted)
        self._trace.note("read", self._name, seat.name, answer.header.revision)
        self._group.journal.reads += 1
        return answer

    async def _read_txn(self, seat: Seat) -> None:
        """Two ranges of one moment."""
        keys = rpc.RangeRequest(key=KEY_PREFIX, range_end=prefix_end(KEY_PREFIX))
        lists = rpc.RangeRequest(key=LIST_PREFIX, range_end=prefix_end(LIST_PREFIX))
        request = rpc.TxnRequest(success=[rpc.RequestOp(request_range=each) for each in (keys, lists)])
        least, compacted = self._truth.revision, self._truth.compact_revision
        try:
            told = await self._caller.call(seat, lambda store: store.kv.Txn(request, THROUGH), self._patience_s())
        except (Unknown, DLedgerError):
            return
        answer: rpc.TxnResponse = told
        for each, given in zip((keys, lists), answer.responses, strict=True):
            found = given.response_range
            found.header.revision = answer.header.revision
            self._truth.check_range(each, found, least, compacted)
        self._group.journal.reads += 1

    async def _hash(self, seat: Seat) -> None:
        """Of the keys as of a revision: all nodes that are compacted alike give the same."""
        request = rpc.HashKVRequest(revision=max(1, self._truth.revision - self._random.randrange(20)))
        try:
            told = await self._caller.call(
                seat, lambda store: store.maintenance.HashKV(request, THROUGH), self._patience_s()
            )
        except (Unknown, DLedgerError, StoreRefused):
            return
        answer: rpc.HashKVResponse = told
        self._truth.check_hash(answer)
        self._group.journal.reads += 1

    # What it says ------------------------------------------------------------------------------------------------

    def _key(self) -> bytes:
        return b"%s%d" % (KEY_PREFIX, self._random.randrange(KEYS))

    def _tag(self) -> bytes:
        self._number += 1
        return f"{self._name}-{self._number}".encode()

    def _patience_s(self) -> float:
        return self._random.choice((0.3, 2.0, 12.0))


async def _read(request: rpc.RangeRequest, store: SeatStore) -> rpc.RangeResponse:
    least = store.least_revision
    answer: rpc.RangeResponse = await store.kv.Range(request, THROUGH)
    store.tell(answer.header.revision, least)
    return answer
