"""Changes of the members, asked for as a client does: of whoever leads, again while that helps. And a load."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Self

from dledger.common.errors import Code, DLedgerError
from dledger.group.leader.members import Change, Members
from tests.support.cluster import SimCluster, SimNode, address_of, outcome
from tests.unit.group.storm import UNKNOWN, Journal

AGAIN = {Code.NOT_LEADER, Code.LEADER_NOT_READY, Code.LEADER_TRANSFERRING, Code.CHANGE_PENDING, *UNKNOWN}
PAUSE_S = 0.01


async def change(cluster: SimCluster, ask: Callable[[Members], Awaitable[Change]]) -> Change:
    """Raises what asking again does not help with."""
    while True:
        leader = await cluster.leader()
        try:
            return await ask(leader.replica.members)
        except DLedgerError as refusal:
            if refusal.code not in AGAIN:
                raise
        await asyncio.sleep(PAUSE_S)


async def refusal_of(changed: Awaitable[object]) -> Code:
    """Of a change that must be refused."""
    try:
        await changed
    except DLedgerError as refusal:
        return refusal.code
    raise AssertionError("it was not refused")


async def add(cluster: SimCluster, at: int) -> SimNode:
    """Starts a new node, and makes it a learner that has caught up."""
    node = await cluster.join(at)
    await change(cluster, lambda members: members.add(node.id, address_of(node.id)))
    await caught_up(cluster, node)
    return node


async def caught_up(cluster: SimCluster, node: SimNode) -> None:
    leader = await cluster.leader()
    last = leader.log.last.position
    await cluster.until(lambda: node.commit_position >= last)
    # It may hear of the commit before the leader hears that it has the frames.
    leadership = leader.replica.core.leadership
    if leadership is not None:
        progress = leadership.followers[node.id]
        await cluster.until(lambda: progress.match >= last)


async def add_voter(cluster: SimCluster, at: int) -> SimNode:
    node = await add(cluster, at)
    await change(cluster, lambda members: members.promote(node.id))
    return node


async def remove(cluster: SimCluster, node: SimNode) -> Change:
    return await change(cluster, lambda members: members.remove(node.id))


async def begin_removal(leader: SimNode, leaving: SimNode) -> asyncio.Task[Change]:
    """Queued to be written in the next turn of the loop, behind an append, as on a busy leader."""
    leader.submit(b"busy")
    removing = asyncio.create_task(leader.replica.members.remove(leaving.id))
    await asyncio.sleep(0)
    assert leaving.id in leader.replica.core.membership.voters
    return removing


async def readmit(cluster: SimCluster, node: SimNode) -> None:
    """As a voter again."""
    await change(cluster, lambda members: members.readmit(node.id))
    await caught_up(cluster, node)
    await change(cluster, lambda members: members.promote(node.id))


def voters_of(node: SimNode) -> set[str]:
    return {member.id for member in node.log.state.members if member.voter}


def members_of(node: SimNode) -> set[str]:
    return {member.id for member in node.log.state.members}


class Load:
    """Appends one record after the other to whoever leads; remembers what it was told."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._journal = Journal()
        self._is_ending = False

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="load")
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing acknowledged is lost, and nothing is there that was refused."""
        self._is_ending = True
        await self._task
        await self._cluster.level()
        self._journal.check((await self._cluster.leader()).committed())

    async def _run(self) -> None:
        number = 0
        while not self._is_ending:
            number += 1
            record = b"%d" % number
            leading = [node for node in self._cluster.up() if node.leads]
            if leading:
                result = await outcome(leading[-1].append(record))
                if not isinstance(result, Code):
                    self._journal.acknowledge(result.base_index, [record])
                else:
                    (self._journal.unknown if result in UNKNOWN else self._journal.refused).add(record)
            await asyncio.sleep(0.001)
