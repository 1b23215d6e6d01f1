"""What a simulated node's lives are held against."""

from __future__ import annotations

import asyncio

import pytest

from dledger.common.types import LogPoint, Position, Term
from dledger.log.log_api import Damaged, DamagedRange
from tests.simulation.process import GoneError, in_world
from tests.unit.group.rot import append, rotting, until


@in_world
async def test_a_log_that_is_opened_anew_is_held_against_what_it_was_when_it_was_closed() -> None:
    """Not against what an earlier life had promised: a leader may have cut that since."""
    async with rotting() as (_, (_, patient, _other)):
        closed, node = patient.replica, patient.life.node
        assert node is not None
        last = closed.log.last
        patient.promised = LogPoint(Position(3), Term(9), 0)

        async def step_aside() -> None:
            repaired = DamagedRange(last.position, last.position, closed.log.state.start)
            node.on_stuck(closed.group, Damaged("it was damaged", repaired))

        await patient.ask(step_aside)
        await until(lambda: patient.replica is not closed)
        assert (patient.promised.position, patient.promised.term) == (last.position, last.term)


@in_world
async def test_what_is_being_cut_is_not_promised_when_who_asked_for_the_cut_is_gone() -> None:
    """A node that stops cancels whoever asked; the cut goes on in a task of the log's own."""
    async with rotting() as (cluster, (leader, *others)):
        shared = leader.replica.log.last.position
        for host in others:
            host.crash()
        never_committed = asyncio.ensure_future(append(leader, 1))
        await until(lambda: leader.replica.log.durable_position > shared)
        cut_begun = asyncio.Event()
        cluster.on_cut = lambda _: cut_begun.set()

        async def ask_and_leave() -> None:
            asked = asyncio.create_task(leader.replica.log.truncate(shared))
            await cut_begun.wait()
            asked.cancel()
            await asyncio.wait([asked])
            assert leader.replica.log.durable_position > shared

        await leader.ask(ask_and_leave)
        leader.crash()
        assert leader.promised.position == shared
        with pytest.raises(GoneError):
            await never_committed
