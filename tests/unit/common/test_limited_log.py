from __future__ import annotations

import logging

from dledger.common.limited_log import INTERVAL_S, MAX_KEYS, LimitedLog
from tests.unit.transport.recorder import LogRecorder

LOGGER = "dledger.transport.test"


def limited() -> LimitedLog:
    return LimitedLog(logging.getLogger(LOGGER))


def test_the_first_is_said_the_rest_held_back_and_counted_in_the_next() -> None:
    log = limited()
    with LogRecorder(LOGGER) as said:
        for now_s in (0.0, 1.0, INTERVAL_S - 0.1, INTERVAL_S, INTERVAL_S + 1):
            log.say(logging.WARNING, "b", now_s, "event", peer="b")
    assert [record.get("held_back") for record in said.of("event")] == [None, 2]


def test_keys_do_not_hold_each_other_back() -> None:
    log = limited()
    with LogRecorder(LOGGER) as said:
        log.say(logging.WARNING, "b", 0.0, "event", peer="b")
        log.say(logging.WARNING, "c", 0.0, "event", peer="c")
    assert [record["peer"] for record in said.of("event")] == ["b", "c"]


def test_any_number_of_strangers_is_remembered_in_bounded_memory() -> None:
    log = limited()
    for number in range(2 * MAX_KEYS):
        log.say(logging.DEBUG, str(number), 0.0, "event")
    assert len(log._said) == MAX_KEYS
