"""Calls that only the leader of `meta` carries out: on this node if it leads, else on the node that leads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from dledger.common.types import META_GROUP, Consistency
from dledger.group.replica import Replica
from dledger.server.forwarding import Forwarder, RefusedCall
from dledger.server.meta.lease_keeper import LeaderLeaseTimes, LeaseKeeper
from dledger.v1 import meta_pb2 as pb

CALL_TIMEOUT_S = 5.0
"""Of one call to another node."""
SERVICE = "/" + pb.DESCRIPTOR.services_by_name["MetaService"].full_name + "/"


class AtLeader(Protocol):
    """All raise NOT_LEADER where it cannot be done, and LEADER_NOT_READY."""

    async def append(self, records: Sequence[bytes]) -> int:
        """The index of the first record, once all are committed. Raises the errors of an append."""

    async def read_index(self) -> int:
        """Of the last record committed by the time of the call, or a later one; −1: there is none."""

    async def keep_alive(self, lease_id: int) -> int:
        """Gives the lease its full time again, which is returned in seconds; 0: there is no such lease."""

    async def lease_times(self, lease_id: int) -> LeaderLeaseTimes: ...


class ThisNode:
    """While it leads."""

    leases: LeaseKeeper
    """Set once it is made: it submits commands too."""

    def __init__(self, replica: Callable[[], Replica]) -> None:
        self._replica = replica

    async def append(self, records: Sequence[bytes]) -> int:
        replica = self._replica()
        replica.machine.check_serving()
        return (await replica.appender.append_records(records)).base_index

    async def read_index(self) -> int:
        replica = self._replica()
        replica.machine.check_serving()
        return (await replica.reader.read_point(Consistency.LINEARIZABLE)).commit_index

    def tell_commit(self) -> None:
        """Another node waits until it has heard of it."""
        self._replica().commit_teller.tell()

    async def keep_alive(self, lease_id: int) -> int:
        return await self.leases.keep_alive(lease_id)

    async def lease_times(self, lease_id: int) -> LeaderLeaseTimes:
        return await self.leases.lease_times(lease_id)


class _Bounded:
    """A call of this node's own."""

    def invocation_metadata(self) -> Iterable[tuple[str, Any]]:
        return ()

    def time_remaining(self) -> float | None:
        return CALL_TIMEOUT_S


class LeadingNode:
    """The node that leads, over its port for clients."""

    def __init__(self, replica: Callable[[], Replica], forwarder: Forwarder) -> None:
        self._replica = replica
        self._forwarder = forwarder

    async def append(self, records: Sequence[bytes]) -> int:
        request = pb.AppendCommandsRequest(records=records)
        answer = await self._forwarder.unary(self._call("AppendCommands"), request, pb.AppendCommandsResponse)
        return answer.base_index

    async def read_index(self) -> int:
        answer = await self._forwarder.unary(self._call("ReadIndex"), pb.ReadIndexRequest(), pb.ReadIndexResponse)
        return answer.commit_index

    async def keep_alive(self, lease_id: int) -> int:
        request = pb.KeepLeaseAliveRequest(id=lease_id)
        answer = await self._forwarder.unary(self._call("KeepLeaseAlive"), request, pb.KeepLeaseAliveResponse)
        return answer.ttl_s

    async def lease_times(self, lease_id: int) -> LeaderLeaseTimes:
        request = pb.LeaseTimesRequest(id=lease_id)
        answer = await self._forwarder.unary(self._call("LeaseTimes"), request, pb.LeaseTimesResponse)
        return LeaderLeaseTimes(answer.granted_s, answer.remaining_s, answer.commit_index)

    def _call(self, method: str) -> RefusedCall:
        return RefusedCall(method, META_GROUP, self._replica().admission.not_leader(), _Bounded(), SERVICE)
