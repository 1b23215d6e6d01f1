"""All of three nodes come back to rot, and one good copy of each frame is left. All of it: tests.corruption."""

from __future__ import annotations

import pytest

from dledger.group.repair import repairer
from tests.corruption.everywhere import Assignment, assignments, outcome_everywhere
from tests.corruption.expected import Outcome

SCATTERED = (0, 1, 2, 1, 2, 0)


def test_every_frame_may_have_its_good_copy_on_any_node() -> None:
    assert len({case.good for case in assignments()}) == 3**6


@pytest.mark.parametrize("has_lost_power", [True, False])
@pytest.mark.parametrize("good", [SCATTERED, (0,) * 6, (2, 2, 2, 2, 2, 1)])
def test_they_give_each_other_what_they_lack(good: tuple[int, ...], has_lost_power: bool) -> None:
    assert outcome_everywhere(Assignment(good, has_lost_power)) == (Outcome.REPAIRED, "")


def test_nodes_that_repair_nothing_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def in_vain(*_: object) -> bool:
        return False

    monkeypatch.setattr(repairer.Repairer, "_repair", in_vain)
    outcome, reason = outcome_everywhere(Assignment(SCATTERED, has_lost_power=False))
    assert outcome is Outcome.WRONG
    assert reason.startswith("TimeoutError")
