from __future__ import annotations

from random import Random

import pytest

from dledger.transport.dialer import BACK_OFF_FIRST_S, BACK_OFF_MAX_S, BackOff


@pytest.mark.parametrize("seed", range(20))
def test_waits_double_up_to_a_limit_and_each_is_shortened_by_at_most_a_half(seed: int) -> None:
    back_off = BackOff(Random(seed))
    longest_s = BACK_OFF_FIRST_S
    for _ in range(20):
        assert longest_s / 2 <= back_off.next_s() <= longest_s
        longest_s = min(2 * longest_s, BACK_OFF_MAX_S)


def test_after_a_reset_the_waits_are_short_again() -> None:
    back_off = BackOff(Random(1))
    for _ in range(10):
        back_off.next_s()
    back_off.reset()
    assert back_off.next_s() <= BACK_OFF_FIRST_S


def test_nodes_of_different_randomness_do_not_dial_in_step() -> None:
    assert len({BackOff(Random(seed)).next_s() for seed in range(10)}) == 10
