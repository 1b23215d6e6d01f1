"""How long an answer is waited for."""

from __future__ import annotations

from dledger.raft.patience import LIMIT, MARGIN, Patience


def test_it_is_doubled_by_an_answer_that_did_not_come_up_to_a_limit() -> None:
    patience = Patience(100)
    waits = []
    for _ in range(3):
        waits.append(patience.wait_ms)
        patience.give_up()
    assert waits == [100, 200, 100 * LIMIT]


def test_an_acknowledgement_that_took_longer_than_the_first_wait_leaves_room_for_the_next() -> None:
    patience = Patience(100)
    patience.give_up()
    patience.acknowledged(took_ms=150)
    assert patience.wait_ms == 200


def test_a_fast_one_brings_it_back() -> None:
    patience = Patience(100)
    patience.give_up()
    patience.acknowledged(took_ms=30)
    assert patience.wait_ms == MARGIN * 30
    patience.acknowledged(took_ms=1)
    assert patience.wait_ms == 100


def test_so_does_another_connection() -> None:
    patience = Patience(100)
    patience.give_up()
    patience.forget()
    assert patience.wait_ms == 100
