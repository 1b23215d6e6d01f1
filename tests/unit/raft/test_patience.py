"""How long an answer is waited for."""

from __future__ import annotations

from dledger.raft.patience import LIMIT, Patience


def test_it_is_doubled_by_each_answer_that_did_not_come_up_to_a_limit() -> None:
    patience = Patience(100)
    waits = []
    for _ in range(4):
        waits.append(patience.wait_ms)
        patience.give_up()
    assert waits == [100, 200, 400, 100 * LIMIT]


def test_an_answer_that_took_more_than_the_first_wait_leaves_room_for_the_next() -> None:
    patience = Patience(100)
    patience.give_up()
    patience.answered(took_ms=150)
    assert patience.wait_ms == 200


def test_a_fast_answer_brings_it_back() -> None:
    patience = Patience(100)
    for _ in range(4):
        patience.give_up()
    patience.answered(took_ms=90)
    assert patience.wait_ms == 4 * 90
    patience.answered(took_ms=1)
    assert patience.wait_ms == 100


def test_so_does_another_connection() -> None:
    patience = Patience(100)
    patience.give_up()
    patience.forget()
    assert patience.wait_ms == 100


def test_on_a_slow_link_it_settles_at_a_share_that_is_answered_in_time() -> None:
    """The whole takes ten times the first wait, a part its part of that."""
    patience, waited_in_vain = Patience(100), 0
    for _ in range(100):
        took_ms = 1_000 * patience.share
        if took_ms > patience.wait_ms:
            patience.give_up()
            waited_in_vain += 1
        else:
            patience.answered(took_ms)
    assert waited_in_vain == 2
