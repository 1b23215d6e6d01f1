"""Random operations of etcd's API, right ones and wrong ones, as a function of a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

from google.protobuf import text_format
from google.protobuf.message import Message

from tests.etcd.relative import lease, readable, revision
from tests.etcd.stubs import rpc

LONG_TTL_S = 1_000
"""Nothing expires while it runs: a lease's end comes at a time that is not the same on two servers."""
MAX_TXN_OPS = 128
MAX_DEPTH = 3
SIZES = (0, 1, 1, 3, 3, 3, 3, 20, 20, 200)
TOO_LARGE_BYTES = 1_600_000
"""Above etcd's --max-request-bytes, below what gRPC takes."""
KEYS = [b"a", b"a/", b"a/1", b"a/2", b"a0", b"b", b"b\x00", b"c", b"d/\xff", b"e" * 40, b"\x00", b"\xff"]
"""Twelve: so many and no more does Go sort in a stable way, and the order of equal ones is the same everywhere."""
SYSTEM_KEY = b"/dledger/"
LEASE_IDS = [7, 8, 9, 10, 1 << 40, -5]
WATCH_IDS = [0, 0, 0, 1, 2, 3, 5, 77]


class Operation(NamedTuple):
    kind: str
    """The name of the rpc; or "WatchCreate", "WatchCancel": messages on a stream of watches."""
    request: Message

    def __str__(self) -> str:
        text = readable(text_format.MessageToString(self.request, as_one_line=True))
        return f"{self.kind} {text}" if len(text) < 2_000 else f"{self.kind} {text[:2_000]}… ({len(text)} characters)"


def generate(seed: int, count: int) -> list[Operation]:
    return _Generator(Random(seed)).operations(count)


class _Generator:
    def __init__(self, random: Random) -> None:
        self._random = random
        self._named_leases = 0
        weighted: list[tuple[float, Callable[[], Operation]]] = [
            (30, lambda: Operation("Put", self._put())),
            (18, lambda: Operation("Range", self._range())),
            (6, lambda: Operation("DeleteRange", self._delete())),
            (22, lambda: Operation("Txn", _harmless(self._txn(0)))),
            (2, lambda: Operation("RangeStream", self._range())),
            (4, self._grant),
            (2, lambda: Operation("LeaseRevoke", rpc.LeaseRevokeRequest(ID=self._lease()))),
            (2, lambda: Operation("LeaseKeepAlive", rpc.LeaseKeepAliveRequest(ID=self._lease()))),
            (2, lambda: Operation("LeaseTimeToLive", rpc.LeaseTimeToLiveRequest(ID=self._lease(), keys=self._is(0.7)))),
            (1, lambda: Operation("LeaseLeases", rpc.LeaseLeasesRequest())),
            (0.7, self._compact),
            (1, self._hash_kv),
            (0.3, lambda: Operation("Hash", rpc.HashRequest())),
            (0.3, lambda: Operation("Status", rpc.StatusRequest())),
            (0.3, lambda: Operation("Alarm", self._alarm(rpc.AlarmRequest.GET))),
            (0.1, lambda: Operation("Alarm", self._alarm(rpc.AlarmRequest.ACTIVATE))),
            (1.5, lambda: Operation("Alarm", self._alarm(rpc.AlarmRequest.DEACTIVATE))),
            (3, self._watch),
            (0.7, self._cancel),
            (0.4, self._wrong),
        ]
        self._weights = [weight for weight, _ in weighted]
        self._makers = [maker for _, maker in weighted]

    def operations(self, count: int) -> list[Operation]:
        return [maker() for maker in self._random.choices(self._makers, self._weights, k=count)]

    def _is(self, probability: float) -> bool:
        return self._random.random() < probability

    # Parts -------------------------------------------------------------------------------------------------------

    def _key(self) -> bytes:
        return b"" if self._is(0.003) else self._random.choice(KEYS)

    def _range_end(self, key: bytes) -> bytes:
        kind = self._random.random()
        if kind < 0.4:
            return b""
        if kind < 0.5:
            return b"\x00"
        if kind < 0.7 and key and key[-1] < 0xFF:
            return key[:-1] + bytes([key[-1] + 1])
        return self._random.choice(KEYS)

    def _value(self) -> bytes:
        return bytes(self._random.choices(b"abxyz", k=self._random.choice(SIZES)))

    def _lease(self) -> int:
        if self._named_leases and self._is(0.5):
            return lease(self._random.randrange(max(0, self._named_leases - 5), self._named_leases))
        return 0 if self._is(0.05) else self._random.choice(LEASE_IDS)

    def _revision(self) -> int:
        kind = self._random.random()
        if kind < 0.4:
            return 0
        if kind < 0.9:
            return revision(-self._random.randrange(12))
        if kind < 0.97:
            return self._random.choice([revision(1), revision(-200), revision(100), 1, 2])
        return self._random.choice([-1, -7, 1 << 40])

    def _bound(self) -> int:
        return 0 if self._is(0.85) else self._random.choice([revision(-5), revision(-50), 1, revision(0), -1])

    # Requests ----------------------------------------------------------------------------------------------------

    def _put(self) -> rpc.PutRequest:
        ignores_value, ignores_lease = self._is(0.07), self._is(0.07)
        return rpc.PutRequest(
            key=self._key(),
            value=b"" if ignores_value and self._is(0.8) else self._value(),
            lease=0 if self._is(0.7) or (ignores_lease and self._is(0.8)) else self._lease(),
            prev_kv=self._is(0.3),
            ignore_value=ignores_value,
            ignore_lease=ignores_lease,
        )

    def _range(self) -> rpc.RangeRequest:
        key = self._key()
        request = rpc.RangeRequest(
            key=key,
            range_end=self._range_end(key),
            limit=0 if self._is(0.6) else self._random.choice([1, 2, 3, 5, 1_000, -1]),
            revision=self._revision(),
            serializable=self._is(0.3),
            keys_only=self._is(0.15),
            count_only=self._is(0.15),
            min_mod_revision=self._bound(),
            max_mod_revision=self._bound(),
            min_create_revision=self._bound(),
            max_create_revision=self._bound(),
        )
        if self._is(0.4):
            request.sort_order = self._random.choice([0, 1, 2, 2, 9 if self._is(0.05) else 1])  # type: ignore[assignment]
            request.sort_target = self._random.choice([0, 1, 2, 3, 4, 7 if self._is(0.05) else 0])  # type: ignore[assignment]
        return request

    def _delete(self) -> rpc.DeleteRangeRequest:
        key = self._key()
        end = self._range_end(key) if self._is(0.5) else b""
        if end and key < SYSTEM_KEY:
            key = b"a"  # a range over the system's keys is refused here, and is none to etcd
        return rpc.DeleteRangeRequest(key=key, range_end=end, prev_kv=self._is(0.4))

    def _compare(self) -> rpc.Compare:
        key, random = self._key(), self._random
        compare = rpc.Compare(key=key)
        compare.result = random.randrange(4)  # type: ignore[assignment]  # generated enums are types of their own
        compare.target = random.randrange(5)  # type: ignore[assignment]
        if self._is(0.2):
            compare.range_end = self._range_end(key)
        number = random.choice([0, 0, 1, 2, revision(-random.randrange(20))])
        # The union may be of another target than the compare says: then etcd compares with zero.
        target = compare.target if self._is(0.95) else random.randrange(5)
        if target == rpc.Compare.VERSION:
            compare.version = random.choice([0, 0, 1, 2, 3])
        elif target == rpc.Compare.CREATE:
            compare.create_revision = number
        elif target == rpc.Compare.MOD:
            compare.mod_revision = number
        elif target == rpc.Compare.VALUE:
            compare.value = self._value()
        else:
            compare.lease = self._lease()
            if compare.lease not in LEASE_IDS and compare.result in (rpc.Compare.GREATER, rpc.Compare.LESS):
                compare.result = rpc.Compare.NOT_EQUAL  # which of two named leases is the larger differs
        return compare

    def _request_op(self, depth: int) -> rpc.RequestOp:
        kind = self._random.random()
        if kind < 0.45:
            return rpc.RequestOp(request_put=self._put())
        if kind < 0.75:
            request = self._range()
            if not self._is(0.05):
                request.revision = 0 if self._is(0.7) else revision(-self._random.randrange(3))
            return rpc.RequestOp(request_range=request)
        if kind < 0.87 or depth >= MAX_DEPTH:
            return rpc.RequestOp(request_delete_range=self._delete())
        if kind < 0.995:
            return rpc.RequestOp(request_txn=self._txn(depth + 1))
        return rpc.RequestOp()

    def _txn(self, depth: int) -> rpc.TxnRequest:
        random = self._random
        sizes = [0, 1, 1, 2, 3, 5] if depth < 2 else [0, 1, 1, 2]
        return rpc.TxnRequest(
            compare=[self._compare() for _ in range(random.choice([0, 1, 1, 2]))],
            success=[self._request_op(depth) for _ in range(random.choice(sizes))],
            failure=[self._request_op(depth) for _ in range(random.choice(sizes))],
        )

    def _grant(self) -> Operation:
        kind = self._random.random()
        ttl = LONG_TTL_S + self._random.randrange(10) * 100
        if kind < 0.05:
            ttl = self._random.choice([9_000_000_001, 1 << 62])
        if self._is(0.5):
            if ttl < 9_000_000_001:
                self._named_leases += 1
            return Operation("LeaseGrant", rpc.LeaseGrantRequest(TTL=ttl))
        return Operation("LeaseGrant", rpc.LeaseGrantRequest(TTL=ttl, ID=self._random.choice(LEASE_IDS)))

    def _alarm(self, action: rpc.AlarmRequest.AlarmAction.ValueType) -> rpc.AlarmRequest:
        # Not CORRUPT: with it etcd still reads, and the store does not.
        kind = self._random.choice([rpc.NOSPACE, rpc.NOSPACE, rpc.NONE])
        return rpc.AlarmRequest(action=action, memberID=self._random.choice([1, 1, 1, 2]), alarm=kind)

    def _hash_kv(self) -> Operation:
        # Of an older revision etcd may know the hash from a compaction, and then answers what it would refuse.
        at = self._random.choice([0, 0, revision(0), revision(1), 1 << 40])
        return Operation("HashKV", rpc.HashKVRequest(revision=at))

    def _compact(self) -> Operation:
        kind = self._random.random()
        at = revision(-self._random.randrange(15))
        if kind < 0.2:
            at = self._random.choice([0, -3, 1, revision(1), revision(50), revision(-100)])
        return Operation("Compact", rpc.CompactionRequest(revision=at, physical=self._is(0.3)))

    def _watch(self) -> Operation:
        key, random = self._key(), self._random
        kinds = (rpc.WatchCreateRequest.NOPUT, rpc.WatchCreateRequest.NODELETE)
        start = random.choice([0, 0, revision(0), revision(1), revision(-3), revision(-10), revision(-30), revision(4)])
        request = rpc.WatchCreateRequest(
            key=key,
            range_end=self._range_end(key),
            start_revision=start if self._is(0.97) else random.choice([1, -1]),
            progress_notify=self._is(0.2),
            filters=[each for each in kinds if self._is(0.1)],
            prev_kv=self._is(0.5),
            watch_id=random.choice(WATCH_IDS),
            fragment=self._is(0.2),
        )
        return Operation("WatchCreate", request)

    def _cancel(self) -> Operation:
        return Operation("WatchCancel", rpc.WatchCancelRequest(watch_id=self._random.randrange(6)))

    def _wrong(self) -> Operation:
        """What is refused whole, by its size or its form."""
        random = self._random
        count = random.choice([MAX_TXN_OPS, MAX_TXN_OPS + 1])
        gets = [rpc.RequestOp(request_range=rpc.RangeRequest(key=random.choice(KEYS))) for _ in range(count)]
        put = rpc.RequestOp(request_put=rpc.PutRequest(key=random.choice(KEYS)))
        inner = rpc.RequestOp(request_txn=rpc.TxnRequest(success=gets[: random.choice([1, 64, 126, 127, 128])]))
        compare = rpc.Compare(key=b"a", target=rpc.Compare.VERSION, version=0)
        return random.choice(
            [
                Operation("Put", rpc.PutRequest(key=b"large", value=bytes(TOO_LARGE_BYTES))),
                Operation("Txn", rpc.TxnRequest(success=gets)),
                Operation("Txn", rpc.TxnRequest(failure=gets)),
                Operation("Txn", rpc.TxnRequest(compare=[compare] * count)),
                Operation("Txn", rpc.TxnRequest(success=[inner, put])),
                Operation("Txn", rpc.TxnRequest(success=[inner])),
                Operation("Txn", rpc.TxnRequest(compare=[rpc.Compare()])),
                Operation("DeleteRange", rpc.DeleteRangeRequest(key=b"0", range_end=b"\x00", prev_kv=True)),
            ]
        )


def _harmless(request: rpc.TxnRequest) -> rpc.TxnRequest:
    """etcd ends with a panic where a put ignores what the key had before, and the same transaction has deleted the key
    in a way that etcd does not look for (a range without an end; a transaction within it)."""
    ops = list(_ops(request))
    if any(op.HasField("request_delete_range") for op in ops):
        for op in ops:
            if op.HasField("request_put"):
                op.request_put.ignore_value = op.request_put.ignore_lease = False
    return request


def _ops(request: rpc.TxnRequest) -> Iterator[rpc.RequestOp]:
    for op in (*request.success, *request.failure):
        yield op
        if op.HasField("request_txn"):
            yield from _ops(op.request_txn)
