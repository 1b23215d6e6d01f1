"""Checkpoints, by exhaustive search: the rules hold in every order of steps, and each is needed."""

from __future__ import annotations

import pytest

from tests.models.checkpoints import Rules, check

CONFIRMED = "only a right checkpoint is confirmed"
TRIMMED = "a trimmed log has a confirmed checkpoint"
ALONE = "a damaged state stays alone"


def test_no_order_of_steps_breaks_the_rules() -> None:
    found = check(Rules(most_entries=5))
    assert not found.broken, found.steps
    assert found.states > 10_000


@pytest.mark.parametrize(
    ("rules", "broken"),
    [
        (Rules(minority_confirms=True), {CONFIRMED}),
        (Rules(trims_unconfirmed=True), {TRIMMED}),
        (Rules(trims_behind_begin=True), {TRIMMED}),
        (Rules(loads_unconfirmed=True, trims_unconfirmed=True), {TRIMMED, ALONE}),
    ],
    ids=["a minority confirms", "an unconfirmed checkpoint is trimmed to", "BEGIN is trimmed", "it is loaded, too"],
)
def test_a_rule_that_is_broken_is_found_out(rules: Rules, broken: set[str]) -> None:
    assert check(rules).broken in broken
