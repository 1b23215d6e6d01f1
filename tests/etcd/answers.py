"""What two servers must agree on: an answer without what is each server's own."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import grpc
from google.protobuf import text_format
from google.protobuf.message import Message

from tests.etcd.operations import Operation
from tests.etcd.relative import without_ids
from tests.etcd.stubs import rpc

TTL_SLACK_S = 60
"""That an episode takes at most."""


class Answer(NamedTuple):
    status: str
    """"OK", or the name of the status code."""
    details: str = ""
    message: Message | None = None

    @property
    def is_lost(self) -> bool:
        """The server itself gave none."""
        return self.status == "UNAVAILABLE" and not self.details.startswith("etcdserver")

    def __str__(self) -> str:
        if self.message is None:
            return f"{self.status}: {self.details}"
        return f"{type(self.message).__name__} {text_format.MessageToString(self.message, as_one_line=True)}"


def refused(failure: grpc.RpcError) -> Answer:
    call: Any = failure
    return Answer(call.code().name, call.details())


def comparable(operation: Operation, message: Any, leases: Mapping[int, int]) -> Answer:
    """``leases``: the ids that this server has named, and as its how manieth each."""
    common = without_ids(message, leases)
    header(common)
    if operation.kind in _OWN:
        _OWN[operation.kind](common)
    return Answer("OK", "", common)


def header(message: Any) -> None:
    """Leaves the revision alone in it."""
    message.header.cluster_id = message.header.member_id = message.header.raft_term = 0


def _time_to_live(message: rpc.LeaseTimeToLiveResponse) -> None:
    message.keys.sort()
    if message.TTL >= 0 and message.grantedTTL - message.TTL <= TTL_SLACK_S:
        message.TTL = message.grantedTTL


def _leases(message: rpc.LeaseLeasesResponse) -> None:
    message.leases.sort(key=lambda each: each.ID)  # etcd's order is that of their ends


def _hash(message: rpc.HashResponse) -> None:
    message.hash = 0


def _hash_kv(message: rpc.HashKVResponse) -> None:
    """etcd may answer with any hash that it has kept from a compaction."""
    message.CopyFrom(rpc.HashKVResponse(header=message.header))


def _status(message: rpc.StatusResponse) -> None:
    errors = [re.sub(" +", " ", each) for each in message.errors]  # Go's protobuf varies the spaces, on purpose
    message.CopyFrom(rpc.StatusResponse(header=message.header, errors=errors))


_OWN: Mapping[str, Callable[[Any], None]] = {
    "LeaseTimeToLive": _time_to_live,
    "LeaseLeases": _leases,
    "Hash": _hash,
    "HashKV": _hash_kv,
    "Status": _status,
}
