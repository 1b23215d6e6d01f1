"""The store as its documentation reads, in the plainest way: the whole content is kept of every revision.

It shares no code with the store but the messages. It is slow, and it is right: what the store does is compared with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from dledger.etcdpb import kv_pb2 as kvpb
from dledger.etcdpb import rpc_pb2 as pb

TARGETS: dict[int, str] = {
    pb.Compare.VERSION: "version",
    pb.Compare.CREATE: "create_revision",
    pb.Compare.MOD: "mod_revision",
    pb.Compare.VALUE: "value",
    pb.Compare.LEASE: "lease",
}
RESULTS: dict[int, Callable[[Any, Any], bool]] = {
    pb.Compare.EQUAL: lambda this, that: this == that,
    pb.Compare.GREATER: lambda this, that: this > that,
    pb.Compare.LESS: lambda this, that: this < that,
    pb.Compare.NOT_EQUAL: lambda this, that: this != that,
}
SORTS: dict[int, Callable[[kvpb.KeyValue], Any]] = {
    pb.RangeRequest.KEY: lambda kv: kv.key,
    pb.RangeRequest.VERSION: lambda kv: kv.version,
    pb.RangeRequest.CREATE: lambda kv: kv.create_revision,
    pb.RangeRequest.MOD: lambda kv: kv.mod_revision,
    pb.RangeRequest.VALUE: lambda kv: kv.value,
}


class No(Exception):
    """Refused; the argument is the name of the store's code."""


class Change(NamedTuple):
    is_delete: bool
    kv: kvpb.KeyValue


class Path(NamedTuple):
    """Whether the compares hold, and what is done then."""

    succeeded: bool
    ops: list[pb.RequestOp | Path]


Content = dict[bytes, kvpb.KeyValue]


def is_within(key: bytes, first: bytes, end: bytes) -> bool:
    if not end:
        return key == first
    return key >= first and (end == b"\0" or key < end)


class Reference:
    def __init__(self) -> None:
        self.contents: dict[int, Content] = {1: {}}
        """By revision."""
        self.changes: dict[int, list[Change]] = {}
        """By revision."""
        self.revision = 1
        self.compacted = -1
        self.leases: dict[int, tuple[int, int]] = {}
        """By id: the TTL, and the serial."""
        self.serial = 0

    # In a transaction, ``draft`` is what the content will be, and ``made`` the changes so far.

    def begin(self) -> None:
        self.draft: Content = dict(self.contents[self.revision])
        self.made: list[Change] = []

    def commit(self) -> None:
        if self.made:
            self.revision += 1
            self.contents[self.revision] = self.draft
            self.changes[self.revision] = self.made

    @property
    def seen_revision(self) -> int:
        return self.revision + (1 if self.made else 0)

    def put(self, request: pb.PutRequest) -> pb.PutResponse:
        self.begin()
        self.check_put(request)
        answer = self.draft_put(request)
        self.commit()
        return answer

    def check_put(self, request: pb.PutRequest) -> None:
        if request.lease and request.lease not in self.leases:
            raise No("LEASE_NOT_FOUND")
        if (request.ignore_value or request.ignore_lease) and request.key not in self.contents[self.revision]:
            raise No("KEY_NOT_FOUND")

    def draft_put(self, request: pb.PutRequest) -> pb.PutResponse:
        before = self.draft.get(request.key)
        mod = self.revision + 1
        known = before or kvpb.KeyValue()
        after = kvpb.KeyValue(
            key=request.key,
            value=known.value if request.ignore_value else request.value,
            lease=known.lease if request.ignore_lease else request.lease,
            create_revision=before.create_revision if before else mod,
            mod_revision=mod,
            version=known.version + 1,
        )
        self.draft[request.key] = after
        self.made.append(Change(False, after))
        answer = pb.PutResponse(header=pb.ResponseHeader(revision=mod))
        if request.prev_kv and before:
            answer.prev_kv.CopyFrom(before)
        return answer

    def delete_range(self, request: pb.DeleteRangeRequest) -> pb.DeleteRangeResponse:
        self.begin()
        answer = self.draft_delete(request)
        self.commit()
        return answer

    def draft_delete(self, request: pb.DeleteRangeRequest) -> pb.DeleteRangeResponse:
        keys = [key for key in sorted(self.draft) if is_within(key, request.key, request.range_end)]
        answer = pb.DeleteRangeResponse(deleted=len(keys))
        for key in keys:
            before = self.draft.pop(key)
            self.made.append(Change(True, kvpb.KeyValue(key=key, mod_revision=self.revision + 1)))
            if request.prev_kv:
                answer.prev_kvs.append(before)
        answer.header.revision = self.seen_revision
        return answer

    def range(self, request: pb.RangeRequest) -> pb.RangeResponse:
        self.begin()
        return self.draft_range(request)

    def draft_range(self, request: pb.RangeRequest) -> pb.RangeResponse:
        if request.revision > self.seen_revision:
            raise No("FUTURE_REVISION")
        if 0 < request.revision < self.compacted:
            raise No("COMPACTED")
        content = self.draft
        if 0 < request.revision < self.seen_revision:
            content = self.contents[request.revision]
        found = [content[key] for key in sorted(content) if is_within(key, request.key, request.range_end)]
        answer = pb.RangeResponse(count=len(found), header=pb.ResponseHeader(revision=self.seen_revision))
        if request.count_only:
            return answer
        bounds: tuple[tuple[str, Callable[[kvpb.KeyValue, int], bool]], ...] = (
            ("min_mod_revision", lambda kv, least: kv.mod_revision >= least),
            ("max_mod_revision", lambda kv, most: kv.mod_revision <= most),
            ("min_create_revision", lambda kv, least: kv.create_revision >= least),
            ("max_create_revision", lambda kv, most: kv.create_revision <= most),
        )
        is_bound = any(getattr(request, name) for name, _ in bounds)
        is_by_key = request.sort_order == 0 or (request.sort_order == 1 and request.sort_target == 0)
        if is_by_key and not is_bound and request.limit > 0:
            found = found[: request.limit + 1]
        for name, fits in bounds:
            if getattr(request, name):
                found = [kv for kv in found if fits(kv, getattr(request, name))]
        found = sorted(found, key=SORTS[request.sort_target], reverse=request.sort_order == 2)
        if 0 < request.limit < len(found):
            found = found[: request.limit]
            answer.more = True
        for kv in found:
            shown = answer.kvs.add()
            shown.CopyFrom(kv)
            if request.keys_only:
                shown.value = b""
                if request.sort_target != pb.RangeRequest.VALUE:
                    shown.lease = 0
        return answer

    def txn(self, request: pb.TxnRequest) -> pb.TxnResponse:
        self.begin()
        path = self.choose(request)
        self.check_branch(path)
        answer = self.run(path)
        answer.header.revision = self.seen_revision
        self.commit()
        return answer

    def choose(self, request: pb.TxnRequest) -> Path:
        succeeded = all(map(self.holds, request.compare))
        ops = list(request.success if succeeded else request.failure)
        return Path(succeeded, [self.choose(op.request_txn) if op.HasField("request_txn") else op for op in ops])

    def holds(self, compare: pb.Compare) -> bool:
        content = self.contents[self.revision]
        of = [content[key] for key in sorted(content) if is_within(key, compare.key, compare.range_end)]
        if not of and compare.target == pb.Compare.VALUE:
            return False
        field = TARGETS[compare.target]
        return all(
            RESULTS[compare.result](getattr(kv, field), getattr(compare, field)) for kv in of or [kvpb.KeyValue()]
        )

    def check_branch(self, path: Path) -> None:
        for op in path.ops:
            if isinstance(op, Path):
                self.check_branch(op)
            elif op.HasField("request_put"):
                self.check_put(op.request_put)
            elif op.HasField("request_range"):
                if op.request_range.revision > self.revision:
                    raise No("FUTURE_REVISION")
                if op.request_range.revision and op.request_range.revision < self.compacted:
                    raise No("COMPACTED")

    def run(self, path: Path) -> pb.TxnResponse:
        answer = pb.TxnResponse(succeeded=path.succeeded, header=pb.ResponseHeader())
        for op in path.ops:
            if isinstance(op, Path):
                answer.responses.append(pb.ResponseOp(response_txn=self.run(op)))
            elif op.HasField("request_put"):
                answer.responses.append(pb.ResponseOp(response_put=self.draft_put(op.request_put)))
            elif op.HasField("request_delete_range"):
                deleted = self.draft_delete(op.request_delete_range)
                answer.responses.append(pb.ResponseOp(response_delete_range=deleted))
            else:
                answer.responses.append(pb.ResponseOp(response_range=self.draft_range(op.request_range)))
        return answer

    def compact(self, request: pb.CompactionRequest) -> pb.CompactionResponse:
        if request.revision <= self.compacted:
            raise No("COMPACTED")
        if request.revision > self.revision:
            raise No("FUTURE_REVISION")
        self.compacted = request.revision
        return pb.CompactionResponse(header=pb.ResponseHeader(revision=self.revision))

    def grant(self, request: pb.LeaseGrantRequest, chosen: int) -> pb.LeaseGrantResponse:
        """``chosen``: what the store chose as an id, where the request leaves it to it."""
        if request.TTL > 9_000_000_000:
            raise No("LEASE_TTL_TOO_LARGE")
        lease_id = request.ID or chosen
        if lease_id in self.leases:
            raise No("LEASE_EXISTS")
        self.serial += 1
        self.leases[lease_id] = max(request.TTL, 2), self.serial
        header = pb.ResponseHeader(revision=self.revision)
        return pb.LeaseGrantResponse(header=header, ID=lease_id, TTL=max(request.TTL, 2))

    def keys_of(self, lease_id: int) -> list[bytes]:
        content = self.contents[self.revision]
        return [key for key in sorted(content) if content[key].lease == lease_id]

    def revoke(self, lease_id: int) -> pb.LeaseRevokeResponse:
        if lease_id not in self.leases:
            raise No("LEASE_NOT_FOUND")
        self.begin()
        for key in self.keys_of(lease_id):
            self.draft_delete(pb.DeleteRangeRequest(key=key))
        self.commit()
        del self.leases[lease_id]
        return pb.LeaseRevokeResponse(header=pb.ResponseHeader(revision=self.revision))

    def expire(self, named: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Those (id, serial) that went."""
        gone = []
        for lease_id, serial in named:
            if lease_id in self.leases and self.leases[lease_id][1] == serial:
                self.revoke(lease_id)
                gone.append((lease_id, serial))
        return gone

    # Watches -----------------------------------------------------------------------------------------------------

    def events(self, first: bytes, end: bytes, revision: int) -> list[tuple[int, bool, kvpb.KeyValue]]:
        """(revision, is a deletion, pair) of all changes from a revision on of the keys of a range."""
        return [
            (at, change.is_delete, change.kv)
            for at in sorted(self.changes)
            if at >= revision
            for change in self.changes[at]
            if is_within(change.kv.key, first, end)
        ]

    def before(self, key: bytes, revision: int) -> kvpb.KeyValue | None:
        """As it was right before that revision."""
        return self.contents[revision - 1].get(key)
