"""What no sane member says is passed over: nobody stops for it, and nothing changes."""

from __future__ import annotations

import asyncio

import pytest

from dledger.common.types import DEFAULT_GROUP, Position, Term
from dledger.raft.messages import MAX_TERM_LEAP, AppendResponse, HeartbeatResponse, Message, PushResult, VoteRequest
from tests.support.cluster import SimCluster
from tests.support.virtual_time import virtual_time


@virtual_time
async def test_an_acknowledgement_of_what_was_never_sent_counts_for_nothing() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        term, beyond = leader.replica.term, Position(leader.log.last.position + 1_000)
        follower = cluster.others(leader)[0]
        leader.on_message(follower.id, AppendResponse(DEFAULT_GROUP, term, PushResult.SUCCESS, beyond))
        await leader.append(b"x")
        assert await cluster.leader() is leader
        assert leader.replica.term == term


@pytest.mark.parametrize("leap", [MAX_TERM_LEAP, 2**64 - 2])
@virtual_time
async def test_a_term_out_of_reach_is_taken_by_nobody(leap: int) -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        term = leader.replica.term
        far = Term(term + leap)
        one, other = cluster.others(leader)
        wild: list[Message] = [
            HeartbeatResponse(DEFAULT_GROUP, far, 0),
            VoteRequest(DEFAULT_GROUP, far, is_pre_vote=False, last_term=far, last_position=Position(2**63)),
        ]
        for message in wild:
            leader.on_message(one.id, message)
            other.on_message(one.id, message)
        await asyncio.sleep(3)
        assert await cluster.leader() is leader
        assert {node.replica.term for node in cluster.up()} == {term}
