"""The store as a state machine: commands in, etcd's answers out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from google.protobuf.message import DecodeError, Message

from dledger.common.errors import Code, error
from dledger.etcdpb import rpc_pb2 as pb
from dledger.statemachine.api import Refused, StateMachine
from dledger.store import commands, quota, system, txn
from dledger.store.alarms import Alarms
from dledger.store.answers import decode_answer, encode_answer, encode_put_answer
from dledger.store.checkpoint import HEAD_ITEM, CheckpointView, Item, ItemReader, fold, item_hash
from dledger.store.leases import Lease, Leases
from dledger.store.loading import Loader
from dledger.store.mvcc import Mvcc
from dledger.store.reads import check_revision, read_range
from dledger.store.records import digest_bytes
from dledger.store.refusals import StoreCode, StoreRefused
from dledger.v1 import store_pb2


class Store(StateMachine):
    """``pairs`` are the keys and values, ``leases`` what they go with. Both are replaced when the store is founded or
    restored, so nobody keeps them."""

    def __init__(self) -> None:
        self.pairs = Mvcc()
        self.leases = Leases()
        self.alarms = Alarms()
        self.uuid = b""
        """Of this store and no other; empty: it has none yet."""

    # Commands ----------------------------------------------------------------------------------------------------

    def apply(self, command: bytes) -> bytes:
        """The encoded answer: see ``decode_answer``. Raises StoreRefused; CORRUPT_LOG for what is no command, and
        UNSUPPORTED_VERSION for one of a newer program."""
        message = _parsed(command)
        kind = message.WhichOneof("kind")
        if kind == "put":
            return self._put(message.put, is_system=message.is_system)
        if kind is None:
            raise error(Code.UNSUPPORTED_VERSION, "the store does not know this command: start the newer program")
        if self.alarms and kind != "alarm" and pb.CORRUPT in self.alarms:
            raise StoreRefused(StoreCode.CORRUPT)
        return encode_answer(_COMMANDS[kind](self, getattr(message, kind), message.is_system))

    @property
    def _data(self) -> txn.Data:
        return txn.Data(self.pairs, self.leases)

    def _put(self, request: pb.PutRequest, *, is_system: bool) -> bytes:
        commands.check_put(request, is_system=is_system)
        if self.alarms:
            self._check_alarms(quota.cost_of_put(request), is_system=is_system)
        data = self._data
        txn.check_put(data, request)
        data.pairs.begin()
        before = txn.put(data, request)
        data.pairs.end()
        return encode_put_answer(data.pairs.revision, before if request.prev_kv else None)

    def _check_alarms(self, cost_bytes: int, *, is_system: bool) -> None:
        """What the system writes frees space in the end: it is taken even without space."""
        if pb.CORRUPT in self.alarms:
            raise StoreRefused(StoreCode.CORRUPT)
        if cost_bytes and not is_system and pb.NOSPACE in self.alarms:
            raise StoreRefused(StoreCode.NO_SPACE)

    def _delete_range(self, request: pb.DeleteRangeRequest, is_system: bool) -> pb.DeleteRangeResponse:
        commands.check_delete_range(request, is_system=is_system)
        return txn.delete_range(self._data, request)

    def _txn(self, request: pb.TxnRequest, is_system: bool) -> pb.TxnResponse:
        commands.check_txn(request, is_system=is_system)
        if self.alarms:
            self._check_alarms(quota.cost_of_txn(request), is_system=is_system)
        return txn.txn(self._data, request)

    def _compact(self, request: pb.CompactionRequest, is_system: bool) -> pb.CompactionResponse:
        pairs = self.pairs
        if request.revision <= pairs.compact_revision:
            raise StoreRefused(StoreCode.COMPACTED)
        if request.revision > pairs.revision:
            raise StoreRefused(StoreCode.FUTURE_REVISION)
        pairs.compact(request.revision)
        return pb.CompactionResponse(header=self._header())

    def _grant(self, request: pb.LeaseGrantRequest, is_system: bool) -> pb.LeaseGrantResponse:
        self._check_alarms(quota.LEASE_COST_BYTES, is_system=is_system)
        lease = self.leases.grant(request.ID, request.TTL)
        return pb.LeaseGrantResponse(header=self._header(), ID=lease.id, TTL=lease.ttl_s)

    def _revoke(self, request: store_pb2.RevokeLease, is_system: bool) -> pb.LeaseRevokeResponse:
        lease = self._lease(request)
        if lease is None:
            raise StoreRefused(StoreCode.LEASE_NOT_FOUND)
        if not is_system and any(map(system.is_closed, lease.keys)):
            raise StoreRefused(StoreCode.PERMISSION_DENIED)
        self._end_lease(lease)
        return pb.LeaseRevokeResponse(header=self._header())

    def _expire(self, request: store_pb2.ExpireLeases, is_system: bool) -> store_pb2.ExpireLeasesAnswer:
        answer = store_pb2.ExpireLeasesAnswer()
        for each in request.leases:
            lease = self._lease(each)
            if lease is not None:
                self._end_lease(lease)
                answer.leases.append(each)
        answer.revision = self.pairs.revision
        return answer

    def _lease(self, named: store_pb2.RevokeLease) -> Lease | None:
        lease = self.leases.get(named.id)
        return None if lease is None or named.serial not in (0, lease.serial) else lease

    def _end_lease(self, lease: Lease) -> None:
        """Its keys go in the order of the keys, at one revision."""
        pairs = self.pairs
        pairs.begin()
        txn.delete(self._data, sorted(lease.keys))
        pairs.end()
        self.leases.remove(lease)

    def _alarm(self, request: pb.AlarmRequest, is_system: bool) -> pb.AlarmResponse:
        answer = self.alarms.apply(request)
        answer.header.CopyFrom(self._header())
        return answer

    def _found(self, request: store_pb2.FoundStore, is_system: bool) -> store_pb2.FoundStoreAnswer:
        if len(self.pairs) or len(self.leases):
            raise StoreRefused(StoreCode.NOT_EMPTY)
        self.uuid = request.uuid
        if request.revision > self.pairs.revision:
            self.pairs = Mvcc(request.revision, compact_revision=request.revision)
        return store_pb2.FoundStoreAnswer(revision=self.pairs.revision)

    # Reads -------------------------------------------------------------------------------------------------------

    def _header(self) -> pb.ResponseHeader:
        return pb.ResponseHeader(revision=self.pairs.revision)

    def range(self, request: pb.RangeRequest, *, is_counted: bool = True) -> pb.RangeResponse:
        """It was checked (``checks.check_range``). Without ``is_counted`` the count may be left out (``read_range``).
        Raises COMPACTED, FUTURE_REVISION and CORRUPT."""
        if self.alarms:
            self._check_alarms(0, is_system=False)
        answer = pb.RangeResponse()
        read_range(self.pairs, request, answer, is_counted=is_counted)
        return answer

    def read_txn(self, request: pb.TxnRequest) -> pb.TxnResponse:
        """One that ``txn.is_read_only``: it need not be a command. It was checked (``checks.check_txn``). Raises
        COMPACTED, FUTURE_REVISION and CORRUPT."""
        assert txn.is_read_only(request), "what changes the store is a command"
        self._check_alarms(0, is_system=False)
        return txn.txn(self._data, request)

    def hash_kv(self, revision: int) -> pb.HashKVResponse:
        """Of all that can be read up to a revision; 0: the present. Nodes that are compacted alike have the same.
        Raises COMPACTED and FUTURE_REVISION."""
        pairs = self.pairs
        check_revision(pairs, revision)
        of = revision if revision > 0 else pairs.revision
        digest = digest_bytes(pairs.digest_at(of))
        return pb.HashKVResponse(
            header=self._header(),
            hash=int.from_bytes(digest[:4], "little"),
            compact_revision=pairs.compact_revision,
            hash_revision=of,
        )

    # Upkeep ------------------------------------------------------------------------------------------------------

    def clean(self, most: int) -> bool:
        """Frees what compaction left in memory, in about so many steps of some microseconds. Returns whether there is
        more to free. It changes no answer."""
        return self.pairs.clean(most)

    # Answers -----------------------------------------------------------------------------------------------------

    def encode_answer(self, answer: bytes) -> bytes:
        return answer

    def decode_answer(self, data: bytes) -> Any:
        """etcd's response, whose header has the revision alone; of commands that etcd does not have, the answer in
        ``store.proto``."""
        return decode_answer(data)

    def encode_refusal(self, refusal: Refused) -> bytes:
        assert isinstance(refusal, StoreRefused), "the store refuses nothing otherwise"
        return refusal.code.name.encode()

    def decode_refusal(self, data: bytes) -> StoreRefused:
        return StoreRefused(StoreCode[data.decode()])

    # Checkpoints -------------------------------------------------------------------------------------------------

    def _head(self) -> bytes:
        head = store_pb2.StoreHead(
            revision=self.pairs.revision,
            compact_revision=self.pairs.compact_revision,
            uuid=self.uuid,
            lease_serial=self.leases.serial,
            alarms=self.alarms.members(),
            base_digest=digest_bytes(self.pairs.base_digest),
        )
        return head.SerializeToString(deterministic=True)

    def checkpoint(self) -> Iterator[bytes]:
        return CheckpointView(self._head(), list(self.leases), self.pairs)

    async def restore(self, parts: AsyncIterator[bytes]) -> None:
        loader, reader = Loader(), ItemReader()
        async for part in parts:
            for item in reader.feed(part):
                loader.take(item)
        loader.end()
        head = loader.head
        self.pairs, self.leases = loader.pairs, loader.leases
        self.alarms, self.uuid = Alarms(head.alarms), head.uuid

    def digest(self) -> bytes:
        head = item_hash(Item(HEAD_ITEM, self._head()))
        return digest_bytes(head + self.leases.digest + self.pairs.digest())

    def fold(self, digest: bytes, part: bytes) -> bytes:
        return fold(digest, part)


def _parsed(command: bytes) -> store_pb2.StoreCommand:
    try:
        return store_pb2.StoreCommand.FromString(command)
    except DecodeError as reason:
        raise error(Code.CORRUPT_LOG, f"a command of the store cannot be read: {reason}") from reason


_COMMANDS: dict[str, Callable[[Store, Any, bool], Message]] = {
    "delete_range": Store._delete_range,
    "txn": Store._txn,
    "compact": Store._compact,
    "grant": Store._grant,
    "revoke": Store._revoke,
    "expire": Store._expire,
    "alarm": Store._alarm,
    "found": Store._found,
}
