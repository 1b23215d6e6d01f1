"""Whether a checkpoint may replace the log before it. No IO.

A checkpoint is **confirmed** when a majority of the voters, with the leader, has applied its way to the BEGIN and got
the END's digest. A node that loaded a checkpoint has no word on it. Until then nothing before its BEGIN is trimmed, as
the log can still tell which node is right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from enum import Enum

from dledger.common.types import NodeId
from dledger.raft.quorum import majority


class Judgement(Enum):
    OPEN = "too few have reported"
    CONFIRMED = "a majority has the same digest, and so has this node"
    CONTRADICTED = "a majority has the same digest, and this node has another"


def judge(
    own: bytes, said: bytes, reports: Mapping[NodeId, bytes], voters: Collection[NodeId], node_id: NodeId
) -> Judgement:
    """``own`` is this node's digest, empty when it has none, ``said`` the END's; ``reports`` are the others' own, by
    node. OPEN also if a majority agrees with this node, and not with the END: that checkpoint is damaged."""
    digests = {**{each: digest for each, digest in reports.items() if each in voters and digest}}
    if own and node_id in voters:
        digests[node_id] = own
    agreed = [digest for digest, count in Counter(digests.values()).items() if count >= majority(len(voters))]
    if not agreed or not own:
        return Judgement.OPEN
    if agreed[0] != own:
        return Judgement.CONTRADICTED
    return Judgement.CONFIRMED if own == said else Judgement.OPEN
