"""The numbers read from the parts at a scrape, so an append does not pay for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.common.types import Role

if TYPE_CHECKING:
    from dledger.group.replica import Replica


def refresh(replica: Replica) -> None:
    """Copies the gauges into ``replica.metrics``."""
    metrics, state = replica.metrics, replica.log.state
    metrics.has_leader = bool(replica.leader_id)
    metrics.is_leader = replica.role is Role.LEADER
    metrics.term = replica.term
    metrics.proposals_pending = len(replica.checker)
    metrics.first_index = state.first_index
    metrics.commit_index = replica.reader.commit_index
    metrics.last_index = state.next_index - 1
    metrics.commit_position = replica.core.commit_position
    metrics.last_position = state.last.position
    metrics.durable_position = replica.log.durable_position
    metrics.named_producers = state.producers.named_count
    metrics.log_size_bytes = replica.log.size_bytes
    metrics.clock_ahead_s = replica.retention.clocks.clock_ahead_ms / 1000
    metrics.record_ahead_s = replica.retention.clocks.record_ahead_ms / 1000
    for peer in replica.core.membership.others(replica.core.node_id):
        dispatcher = replica.dispatchers.get(peer)
        of_peer = metrics.peer(peer)
        of_peer.connected = replica.is_connected(peer)
        of_peer.messages_dropped = replica.messages_dropped(peer)
        of_peer.lag_frames = state.last.position - dispatcher.progress.match if dispatcher else 0
