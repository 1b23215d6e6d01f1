"""Commands of the store as bytes: what is appended to the log.

``check_*`` judge a request before it becomes a command: a service refuses it at once, and no frame is written for it.
``Store.apply`` judges again, as the log may have come from another program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from dledger.etcdpb import rpc_pb2 as pb
from dledger.store import checks, system
from dledger.v1 import store_pb2

Request = (
    pb.PutRequest
    | pb.DeleteRangeRequest
    | pb.TxnRequest
    | pb.CompactionRequest
    | pb.LeaseGrantRequest
    | pb.LeaseRevokeRequest
    | pb.AlarmRequest
)


class Expired(NamedTuple):
    """A lease whose time is up."""

    lease_id: int
    serial: int


def command(request: Request, *, is_system: bool = False) -> bytes:
    """Raises what ``check`` does."""
    check(request, is_system=is_system)
    of = store_pb2.StoreCommand(is_system=is_system)
    if isinstance(request, pb.LeaseRevokeRequest):
        of.revoke.id = request.ID
        of.revoke.SetInParent()
    else:
        getattr(of, _FIELDS[type(request)]).CopyFrom(request)
    return of.SerializeToString()


def expire_command(leases: Iterable[Expired]) -> bytes:
    """To be appended for the leader's own term alone: under another one the leases have their full time again."""
    of = store_pb2.StoreCommand(is_system=True)
    of.expire.leases.extend(store_pb2.RevokeLease(id=each.lease_id, serial=each.serial) for each in leases)
    of.expire.SetInParent()
    return of.SerializeToString()


def found_command(uuid: bytes, revision: int = 0) -> bytes:
    """``revision``: the store goes on from there, where that is above its own."""
    found = store_pb2.FoundStore(uuid=uuid, revision=revision)
    return store_pb2.StoreCommand(is_system=True, found=found).SerializeToString()


def check(request: Request, *, is_system: bool = False) -> None:
    """Raises what can be refused without knowing the store: REQUEST_TOO_LARGE, what ``checks`` refuses, and
    PERMISSION_DENIED."""
    checks.check_size(request.ByteSize())
    check_content = _CHECKS.get(type(request))
    if check_content is not None:
        check_content(request, is_system=is_system)


def check_put(request: pb.PutRequest, *, is_system: bool) -> None:
    checks.check_put(request)
    if not is_system:
        system.check_put(request)


def check_delete_range(request: pb.DeleteRangeRequest, *, is_system: bool) -> None:
    checks.check_delete_range(request)
    if not is_system:
        system.check_delete_range(request)


def check_txn(request: pb.TxnRequest, *, is_system: bool) -> None:
    checks.check_txn(request)
    if not is_system:
        system.check_txn(request)


_FIELDS = {
    pb.PutRequest: "put",
    pb.DeleteRangeRequest: "delete_range",
    pb.TxnRequest: "txn",
    pb.CompactionRequest: "compact",
    pb.LeaseGrantRequest: "grant",
    pb.AlarmRequest: "alarm",
}
"""Of a command, by the request that it has inside."""
_CHECKS: dict[type, Callable[..., None]] = {
    pb.PutRequest: check_put,
    pb.DeleteRangeRequest: check_delete_range,
    pb.TxnRequest: check_txn,
}
