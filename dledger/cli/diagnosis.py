"""The troubles of a cluster and their remedies: one judgement behind ``health``, ``status`` and commands that fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.cli.runtime import complain, run
from dledger.cli.units import format_about
from dledger.common.errors import Code, DLedgerError
from dledger.common.types import META_GROUP

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dledger.cli.options import Target
    from dledger.client import ClusterStatus, NodeStatus

DOCS = "docs/admin.md"
NOBODY_ANSWERS = "start a cluster here: dledger dev; or name yours: --endpoints HOST:PORT,… or DLEDGER_ENDPOINTS"
NOT_ADDED = (
    "the nodes that answer belong to no cluster yet: add them (dledger admin add ID=HOST:PORT), or ask its members"
)
LOOK_TIMEOUT_MS = 2_000
_IS_ABSENT = frozenset({Code.LEADER_NOT_READY, Code.NOT_HERE})
_IS_ANOTHER_NODE = frozenset({Code.UNEXPECTED_MEMBER.value, Code.UNKNOWN_CLUSTER.value})
_IS_SILENT = frozenset({Code.NETWORK_ERROR, Code.TIMEOUT})


async def look(target: Target) -> ClusterStatus:
    """The status of the group. Of ``meta`` instead, where the group is not to be seen because the cluster itself is
    being founded, or has another trouble. Raises what ``Log.status`` raises."""
    try:
        async with target.connect() as log:
            return await log.status()
    except DLedgerError as failure:
        if failure.code not in _IS_ABSENT or target.group == META_GROUP:
            raise
        found = await look(target._replace(group=META_GROUP))
        if failure.code is Code.NOT_HERE and found.healthy:
            raise
        return found


def tell_why(target: Target) -> None:
    """After a failure that the state of the cluster may explain: the troubles of the cluster, on stderr."""
    try:
        found = run(look(target._replace(timeout_ms=min(target.timeout_ms, LOOK_TIMEOUT_MS))))
    except DLedgerError as failure:
        if failure.code in _IS_SILENT:
            complain(NOBODY_ANSWERS)
        return
    for trouble in () if found.healthy else troubles(found):
        complain(f"why: {trouble}")


def troubles(found: ClusterStatus) -> list[str]:
    """Each with what to do, the gravest first. None: all is well."""
    if not found.nodes:
        return [NOT_ADDED]
    waiting = [node for node in found.nodes if node.founders_missing] if found.leader is None else []
    if waiting:
        return [_unfounded(found, waiting)]
    removed = [_removed(node) for node in found.nodes if node.role == "removed"]
    if len(removed) == sum(node.reachable for node in found.nodes):
        return removed
    told = [] if found.healthy else _of_all(found)
    return [
        *told,
        *removed,
        *_away(found),
        *_refusing(found),
        *(trouble for node in found.nodes for trouble in _of_one(node)),
    ]


def _unfounded(found: ClusterStatus, waiting: Sequence[NodeStatus]) -> str:
    ids = [node.id for node in waiting]
    missing = set[str]().union(*(node.founders_missing for node in waiting)) - {*ids}
    holding = [node.id for node in found.nodes if node.position > 0 and node.id in missing]
    empty = f"no leader; nothing is in the log of {', '.join(ids)}, and "
    if holding:
        return f"{empty}no other is founded beside that of {', '.join(holding)}: see 'A majority is gone' in {DOCS}"
    to_start = ", ".join(sorted(missing)) or "them all"
    return (
        f"{empty}a cluster is founded when all its founders have met, all of them new: start {to_start}; if one "
        f"holds a log already, see 'A majority is gone' in {DOCS}"
    )


def _of_all(found: ClusterStatus) -> list[str]:
    """Why no append can be acknowledged, as far as it is no single node's trouble."""
    hindered = [
        f"{', '.join(node.id for node in found.nodes if why in node.vote_blockers)}: {why}"
        for why in sorted({why for node in found.nodes for why in node.vote_blockers})
    ]
    if hindered:
        hindered.append(f"see 'There is no leader' in {DOCS}")
    if not found.has_majority:
        return ["no majority", *hindered]
    leader = found.node(found.leader) if found.leader else None
    if leader is not None and leader.reachable:
        return [f"the disk of the leader, {leader.id}, is {leader.disk.state}: no appends until another can lead"]
    if hindered:
        return ["no leader", *hindered]
    return ["no leader: an election takes about a second; where it lasts, see the nodes' logs"]


def _removed(node: NodeStatus) -> str:
    refusing = ", ".join(each.id for each in node.refused_by)
    return (
        f"{node.id} was removed from the cluster, {refusing} refused it: stop it, and ask the members (--endpoints), "
        f"or add it again: dledger admin add {node.id}={node.peer_address}"
    )


def refused(found: ClusterStatus, node: NodeStatus) -> list[str]:
    """The nodes that refuse ``node``, or are refused by it, by their own word."""
    return [each.id for each in found.nodes if any(node.id == refusal.id for refusal in each.refused_by)]


def _away(found: ClusterStatus) -> Iterator[str]:
    away = [node.id for node in found.nodes if not node.reachable and not refused(found, node)]
    if away:
        told = f"{', '.join(away)} cannot be reached: start {'it' if len(away) == 1 else 'them'}"
        gone = f"; if {'it' if len(away) == 1 else 'one'} is gone for good: dledger admin remove {away[0]} --move"
        yield told + gone if found.healthy else told


def _refusing(found: ClusterStatus) -> Iterator[str]:
    """Members that do not answer here, and that other members speak with in vain."""
    for node in found.nodes:
        refusals = [each for other in found.nodes for each in other.refused_by if each.id == node.id]
        if node.reachable or not refusals:
            continue
        told = f"{node.id} refuses {', '.join(refused(found, node))}: {refusals[0].message}"
        is_another = any(each.code in _IS_ANOTHER_NODE for each in refusals)
        remedy = f"; if another node is at {node.peer_address}: dledger admin remove {node.id}, then add the right one"
        yield told + remedy if is_another else told


def _of_one(node: NodeStatus) -> Iterator[str]:
    """The troubles of a node that answers."""
    if node.voter and node.counts is False:
        yield f"{node.id} is in doubt, its disk is not the one that was admitted: dledger admin readmit {node.id}"
    if node.role == "recovering":
        yield f"{node.id} is repairing its log, and takes no appends before"
    damaged = max(node.damaged_frames, node.node_damaged_frames)
    if node.repair_stuck:
        yield f"{node.id} found no good copy of damaged frames yet: start the nodes that are down"
    elif damaged:
        yield f"{node.id} repairs {damaged} damaged frames from the other nodes: see 'A disk that rots' in {DOCS}"
    if node.disk.state in ("low", "full"):
        yield f"the disk of {node.id} is {node.disk.state}, see 'Free disk space' in {DOCS}"
    if node.clock_ahead_ms:
        yield f"the clock of {node.id} is {format_about(node.clock_ahead_ms)} ahead of the other voters': set it right"
    if node.record_ahead_ms:
        yield (
            f"the last record's time is {format_about(node.record_ahead_ms)} ahead of the clocks, and later records "
            "get that time until the clocks reach it: see to the clocks of all nodes"
        )
    if node.disk.state == "hung":
        yield f"the disk of {node.id} is hung, a write does not come back: see what its machine says"
