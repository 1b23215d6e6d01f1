"""The backend of etcd's services: the store of this node, written by the leader of `meta`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import blake2b
from typing import Any

from dledger.common.types import Member, NodeId
from dledger.node.node import Node
from dledger.server.etcd.backend import ClusterMember, LeaseTimes
from dledger.server.etcd.refusals import BAD_LEADER_TRANSFEREE, Refusal
from dledger.server.meta.meta_store import MetaStore
from dledger.store.machine import Store
from dledger.store.refusals import StoreCode, StoreRefused
from dledger.store.watch import WatchHub

ELECTIONS = 3
"""After so many election timeouts without a leader it is said to be lost."""


@cache
def etcd_id(name: str) -> int:
    """The id of a cluster or a node for etcd's clients: 64 bits, and never 0."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big") or 1


class MetaBackend:
    def __init__(self, node: Node, meta: MetaStore) -> None:
        self._node = node
        self._meta = meta
        self.member_id = etcd_id(node.config.id)
        self._cluster_id = 0
        self.quota_bytes = node.config.limits.store_quota_bytes

    @property
    def cluster_id(self) -> int:
        """Every answer has it: it is asked for once."""
        if not self._cluster_id and self._node.cluster_id:
            self._cluster_id = etcd_id(self._node.cluster_id)
        return self._cluster_id

    @property
    def store(self) -> Store:
        return self._meta.store

    @property
    def watches(self) -> WatchHub:
        return self._meta.served_watches

    @property
    def is_there(self) -> bool:
        return self._meta.is_there

    async def until_there(self) -> None:
        await self._meta.until_there()

    @property
    def term(self) -> int:
        return self._meta.leader.term

    @property
    def leader_id(self) -> int:
        leader = self._meta.leader.id
        return etcd_id(leader) if leader else 0

    @property
    def applied_index(self) -> int:
        return max(0, self._meta.runner.applied_index)

    @property
    def commit_index(self) -> int:
        return max(0, self._meta.replica().reader.commit_index)

    def members(self) -> Sequence[ClusterMember]:
        return [self._member(each) for each in sorted(self._meta.replica().log.state.members)]

    def _member(self, member: Member) -> ClusterMember:
        address = self._node.client_address(member.id)
        return ClusterMember(
            id=etcd_id(member.id),
            name=member.id,
            peer_urls=[f"http://{member.peer_address}"],
            client_urls=[f"http://{address}"] if address else [],
            is_learner=not member.voter,
        )

    async def submit(self, command: bytes) -> Any:
        return await self._meta.runner.submit(command)

    async def open_session(self) -> int:
        """As ``Runner.open_session``."""
        return await self._meta.runner.open_session()

    async def submit_in_session(self, session: int, request: int, acknowledged: int, command: bytes) -> Any:
        """As ``Runner.submit_in``."""
        return await self._meta.runner.submit_in(session, request, acknowledged, command)

    async def barrier(self) -> None:
        await self._meta.runner.barrier()

    async def keep_alive(self, lease_id: int) -> int:
        ttl_s = await self._meta.log.keep_alive(lease_id)
        if not ttl_s:
            raise StoreRefused(StoreCode.LEASE_NOT_FOUND)
        return ttl_s

    async def lease_times(self, lease_id: int) -> LeaseTimes:
        times = await self._meta.log.lease_times(lease_id)
        await self._meta.runner.wait_applied(times.commit_index)
        if not times.granted_s:
            raise StoreRefused(StoreCode.LEASE_NOT_FOUND)
        return LeaseTimes(times.granted_s, times.remaining_s)

    async def move_leader(self, target_id: int) -> None:
        replica = self._meta.replica()
        voters = {etcd_id(each.id): each.id for each in replica.log.state.members if each.voter}
        if target_id not in voters:
            raise Refusal(BAD_LEADER_TRANSFEREE)
        await replica.handover.transfer(NodeId(voters[target_id]), dry_run=False)

    async def leader_lost(self) -> None:
        timings = self._node.config.timings
        await self._meta.leader.lost(ELECTIONS * timings.election_timeout_max_ms / 1000)
