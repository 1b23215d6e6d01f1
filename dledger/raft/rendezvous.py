"""The order in which the nodes of a group are to lead it: rendezvous hashing.

Every node computes the same order from the group's key and the nodes' ids alone. Over many groups each node comes first
equally often; without a node only the groups that it came first in have another first one. Advice, never safety: votes
decide which node leads.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from dledger.common.types import NodeId


def ranked(group: str, nodes: Iterable[NodeId]) -> list[NodeId]:
    """``nodes``, the first choice first."""
    return sorted(nodes, key=lambda node: (_weight(group, node), node))


def _weight(group: str, node: NodeId) -> bytes:
    return blake2b(f"{group}\0{node}".encode(), digest_size=8).digest()
