"""AdminService: what an operator asks of a node."""

from __future__ import annotations

import os

from dledger.server.node import Node
from dledger.server.replica import Replica
from dledger.server.rpc import unary
from dledger.types import NodeId
from dledger.v1 import admin_pb2, admin_pb2_grpc
from dledger.version import __version__


class AdminService(admin_pb2_grpc.AdminServiceServicer):
    def __init__(self, node: Node) -> None:
        self._node = node

    @unary
    async def Status(self, request: admin_pb2.StatusRequest) -> admin_pb2.StatusResponse:  # noqa: N802
        node = self._node
        replica = node.replica(request.group)
        state, config = replica.log.state, node.config
        commit = await replica.log.point_at(max(replica.core.commit_position, state.start.position))
        return admin_pb2.StatusResponse(
            group=replica.group,
            cluster_id=node.cluster_id,
            id=config.id,
            role=replica.role.value,
            term=replica.term,
            leader_id=replica.leader_id,
            first_index=state.first_index,
            commit_index=replica.reader.commit_index,
            last_index=state.next_index - 1,
            position=commit.position,
            chain=commit.chain,
            pid=os.getpid(),
            data_dir=str(config.data_dir),
            durability=config.durability.value,
            version=__version__,
            address=config.client_address,
            peer_address=config.peer_address,
            http_address=config.http_address,
            followers=_followers(replica),
        )

    @unary
    async def TransferLeadership(  # noqa: N802
        self, request: admin_pb2.TransferLeadershipRequest
    ) -> admin_pb2.TransferLeadershipResponse:
        replica = self._node.replica(request.group)
        target = NodeId(request.target_id) if request.target_id else None
        leader_id = await replica.handover.transfer(target)
        return admin_pb2.TransferLeadershipResponse(leader_id=leader_id, term=replica.term)


def _followers(replica: Replica) -> list[admin_pb2.FollowerStatus]:
    last = replica.log.last.position
    return [
        admin_pb2.FollowerStatus(
            id=peer,
            state=dispatcher.progress.state.value,
            match_position=dispatcher.progress.match,
            lag_frames=last - dispatcher.progress.match,
            connected=replica.is_connected(peer),
        )
        for peer, dispatcher in replica.dispatchers.items()
    ]
