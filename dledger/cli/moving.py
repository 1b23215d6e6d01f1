"""``dledger admin remove --move``: a node's places in its groups go to other nodes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from dledger.cli.waiting import Waiting, once_it_passes
from dledger.common.types import META_GROUP

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from dledger.cli.options import Target
    from dledger.client import GroupInfo, Log


class Move(NamedTuple):
    """What is done in one group: ``node_id`` leaves it, and ``successor`` votes in its place; None: nobody."""

    group: str
    node_id: str
    successor: str | None

    def told(self, *, dry_run: bool) -> str:
        """In a sentence."""
        who = self.successor or "nobody"
        if dry_run:
            return f"{self.group}: {self.node_id} would leave, and {who} take its place"
        return f"{self.group}: {self.node_id} has left, and {who} took its place"


def plan_move(group: GroupInfo, node_id: str, loads: Mapping[str, int], away: Collection[str] = ()) -> Move:
    """The node that takes the place of ``node_id``. ``loads``: of how many groups each other node is a member;
    ``away``: those of them that cannot be reached now.

    There is none if ``node_id`` does not vote, or if an even number of voters becomes an odd one: so an interrupted run
    leaves it. A learner that is there already comes first, then the node with the fewest groups. A node that is away
    comes last: it is waited for, rather than that the group loses a voter.
    """
    if node_id not in group.voters or len(group.voters) % 2 == 0:
        return Move(group.name, node_id, None)
    learners = [each for each in group.learners if each in loads]
    others = [each for each in loads if each not in (node_id, *group.voters, *group.learners)]
    successor = min(learners or others, key=lambda each: (each in away, loads[each], each), default=None)
    return Move(group.name, node_id, successor)


async def move_off(target: Target, node_id: str, say: Callable[[str], object], *, dry_run: bool = False) -> None:
    """Moves the node off all groups but ``meta``. Raises what stands in the way; run again, it goes on from there. A
    dry run says who would take each place, and asks whether that node can."""
    with Waiting() as waiting:
        async with target.connect_cluster(on_wait=waiting.tell) as cluster:
            status = await cluster.log(META_GROUP).status()
            groups = await cluster.groups.list()
            others = [each for each in status.nodes if each.id != node_id]
            loads = loads_of(groups, [each.id for each in others])
            away = {each.id for each in others if not each.reachable}
            for group in groups:
                if node_id not in group.voters + group.learners:
                    continue
                move = plan_move(group, node_id, loads, away)
                if dry_run:
                    await _try(cluster.log(group.name), move)
                else:
                    await _carry_out(cluster.log(group.name), move, target.timeout_ms, waiting)
                if move.successor is not None:
                    loads[move.successor] += move.successor not in group.learners
                say(move.told(dry_run=dry_run))


def loads_of(groups: Sequence[GroupInfo], nodes: Iterable[str]) -> Counter[str]:
    """Of how many groups each of ``nodes`` is a member."""
    loads = Counter(dict.fromkeys(nodes, 0))
    for group in groups:
        loads.update(each for each in group.voters + group.learners if each in loads)
    return loads


async def _try(log: Log, move: Move) -> None:
    if move.successor is not None:
        await log.admin.add_learner(move.successor, "", dry_run=True)


async def _carry_out(log: Log, move: Move, timeout_ms: int, waiting: Waiting) -> None:
    admin, successor = log.admin, move.successor
    if successor is not None:
        await admin.add_learner(successor, "")
        await once_it_passes(lambda left_ms: admin.promote(successor, timeout_ms=left_ms), timeout_ms, waiting)
    await once_it_passes(lambda left_ms: admin.remove(move.node_id, timeout_ms=left_ms), timeout_ms, waiting)
