"""What a simulated node's lives are held against."""

from __future__ import annotations

from dledger.storage.damage import Damaged, DamagedRange
from dledger.types import LogPoint, Position, Term
from tests.simulation.process import in_world
from tests.unit.server.rot import rotting, until


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
