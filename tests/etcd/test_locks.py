"""Locks and elections as calls: our server and etcd answer the same, one call after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest
from google.protobuf import text_format
from google.protobuf.message import Message

from dledger.etcdpb import election_pb2 as ep
from dledger.etcdpb import election_pb2_grpc, lock_pb2_grpc, rpc_pb2_grpc
from dledger.etcdpb import lock_pb2 as lp
from tests.etcd.servers import etcd, ours
from tests.etcd.stubs import kv, rpc

pytestmark = pytest.mark.timeout(120)

TIMEOUT_S = 20
SOON_S = 0.5
LEASES = (7, 8, -5)
NO_LEASE = 99


class Asking:
    """One client of one server, which writes down what it was told."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(address)
        self.lock = lock_pb2_grpc.LockStub(self.channel)
        self.election = election_pb2_grpc.ElectionStub(self.channel)
        self.kv = rpc_pb2_grpc.KVStub(self.channel)
        self.told: list[str] = []
        lease = rpc_pb2_grpc.LeaseStub(self.channel)
        for each in LEASES:
            lease.LeaseGrant(rpc.LeaseGrantRequest(ID=each, TTL=1_000))

    def ask(self, call: Any, request: Message, timeout_s: float = TIMEOUT_S) -> Any:
        return self.note(lambda: call(request, timeout=timeout_s))

    def note(self, answer: Callable[[], Any]) -> Any:
        try:
            message = answer()
        except grpc.RpcError as refusal:
            failure: Any = refusal
            is_late = failure.code() is grpc.StatusCode.DEADLINE_EXCEEDED  # by either side, in its own words
            self.told.append(failure.code().name + ("" if is_late else f" {failure.details()}"))
            return None
        shown = type(message)()
        shown.CopyFrom(message)
        shown.header.cluster_id = shown.header.member_id = shown.header.raft_term = 0
        self.told.append(text_format.MessageToString(shown, as_one_line=True))
        return message

    def await_keys(self, prefix: bytes, count: int) -> None:
        """Until so many keys wait, and note them: a call that waits says nothing."""
        request = rpc.RangeRequest(key=prefix, range_end=prefix[:-1] + b"0")
        watch = rpc_pb2_grpc.WatchStub(self.channel)
        found = self.kv.Range(request)
        create = rpc.WatchCreateRequest(
            key=request.key, range_end=request.range_end, start_revision=found.header.revision + 1
        )
        call = watch.Watch(iter([rpc.WatchRequest(create_request=create)]), timeout=TIMEOUT_S)
        keys = {each.key for each in found.kvs}
        while len(keys) != count:
            for event in next(call).events:
                (keys.discard if event.type == kv.Event.DELETE else keys.add)(event.kv.key)
        call.cancel()
        self.told.append(str(sorted(keys)))


def both(script: Callable[[Asking], None]) -> list[str]:
    """What both were told, which is the same."""
    told = []
    for server in (etcd, ours):
        with server() as address:
            asking = Asking(address)
            script(asking)
            asking.channel.close()
            told.append(asking.told)
    assert told[1] == told[0]
    return told[1]


def lock_by_calls(a: Asking) -> None:
    a.ask(a.lock.Lock, lp.LockRequest(name=b"a", lease=NO_LEASE))
    a.ask(a.lock.Lock, lp.LockRequest(name=b"a", lease=7))
    a.ask(a.lock.Lock, lp.LockRequest(name=b"a", lease=7))
    a.ask(a.lock.Lock, lp.LockRequest(name=b"n", lease=-5))
    a.ask(a.lock.Lock, lp.LockRequest(lease=-5))
    a.ask(a.lock.Lock, lp.LockRequest(name=b"a", lease=8), SOON_S)
    a.await_keys(b"a/", 1)
    waiting = a.lock.Lock.future(lp.LockRequest(name=b"a", lease=8), timeout=TIMEOUT_S)
    a.await_keys(b"a/", 2)
    a.ask(a.lock.Unlock, lp.UnlockRequest(key=b"a/7"))
    a.note(waiting.result)
    a.ask(a.lock.Unlock, lp.UnlockRequest(key=b"missing"))
    a.ask(a.lock.Unlock, lp.UnlockRequest())


def lose_the_key_of_a_lock(a: Asking) -> None:
    a.ask(a.lock.Lock, lp.LockRequest(name=b"a", lease=8))
    waiting = a.lock.Lock.future(lp.LockRequest(name=b"a", lease=7), timeout=TIMEOUT_S)
    a.await_keys(b"a/", 2)
    a.ask(a.kv.DeleteRange, rpc.DeleteRangeRequest(key=b"a/7"))
    a.ask(a.lock.Unlock, lp.UnlockRequest(key=b"a/8"))
    a.note(waiting.result)


def elect_by_calls(a: Asking) -> None:
    election = a.election
    a.ask(election.Leader, ep.LeaderRequest(name=b"e"))
    a.ask(election.Campaign, ep.CampaignRequest(name=b"e", lease=NO_LEASE, value=b"x"))
    leader = a.ask(election.Campaign, ep.CampaignRequest(name=b"e", lease=7, value=b"x")).leader
    a.ask(election.Campaign, ep.CampaignRequest(name=b"e", lease=7, value=b"x"))
    a.ask(election.Campaign, ep.CampaignRequest(name=b"e", lease=7, value=b"y"))
    a.ask(election.Leader, ep.LeaderRequest(name=b"e"))
    a.ask(election.Proclaim, ep.ProclaimRequest(leader=leader, value=b"z"))
    observed = election.Observe(ep.LeaderRequest(name=b"e"), timeout=TIMEOUT_S)
    a.note(lambda: next(observed))
    a.ask(election.Proclaim, ep.ProclaimRequest(leader=leader, value=b"zz"))
    a.note(lambda: next(observed))
    a.ask(election.Campaign, ep.CampaignRequest(name=b"e", lease=8, value=b"late"), SOON_S)
    a.await_keys(b"e/", 1)
    request = ep.CampaignRequest(name=b"e", lease=8, value=b"second")
    waiting = election.Campaign.future(request, timeout=TIMEOUT_S)
    a.await_keys(b"e/", 2)
    a.ask(election.Resign, ep.ResignRequest(leader=leader))
    a.note(waiting.result)
    a.note(lambda: next(observed))
    a.ask(election.Resign, ep.ResignRequest(leader=leader))
    a.ask(election.Proclaim, ep.ProclaimRequest(leader=leader, value=b"of old"))
    a.ask(election.Resign, ep.ResignRequest(leader=waiting.result().leader))
    observed.cancel()


def be_wrong(a: Asking) -> None:
    election = a.election
    leader = a.ask(election.Campaign, ep.CampaignRequest(name=b"e", lease=7, value=b"x")).leader
    other_revision, other_lease = ep.LeaderKey(), ep.LeaderKey()
    other_revision.MergeFrom(leader)
    other_revision.rev = 1
    other_lease.MergeFrom(leader)
    other_lease.lease = NO_LEASE
    a.ask(election.Proclaim, ep.ProclaimRequest())
    a.ask(election.Resign, ep.ResignRequest())
    a.ask(election.Proclaim, ep.ProclaimRequest(leader=ep.LeaderKey()))
    a.ask(election.Resign, ep.ResignRequest(leader=ep.LeaderKey()))
    a.ask(election.Proclaim, ep.ProclaimRequest(leader=other_revision))
    a.ask(election.Proclaim, ep.ProclaimRequest(leader=other_lease))
    a.ask(election.Resign, ep.ResignRequest(leader=other_revision))
    a.ask(election.Campaign, ep.CampaignRequest(name=b"e", lease=8, value=b"x" * 1_700_000))
    nobody = election.Observe(ep.LeaderRequest(name=b"none"), timeout=SOON_S)
    a.note(lambda: next(nobody))


@pytest.mark.parametrize("script", [lock_by_calls, lose_the_key_of_a_lock, elect_by_calls, be_wrong])
def test_the_same_calls_are_answered_the_same(script: Callable[[Asking], None]) -> None:
    assert both(script)
