"""The check of registers: it agrees with a judge that tries every order, and finds each kind of planted violation."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.kernels.kernel import Findings
from dledger.kernels.store.linearizable import VIOLATIONS, RegisterCheck
from dledger.kernels.store.register import (
    FAIL,
    FOREVER,
    INFO,
    Answer,
    Expectation,
    Kind,
    Operation,
    Pair,
    Target,
)
from tests.unit.kernels.store.registers import Maker, may_be_linearizable, spoiled


class Told:
    """A history as a reader would tell it, one operation after the other; ``at``: invoked and completed."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._ids = count()

    def _add(self, kind: Kind, at: tuple[int, int], *, key: str = "a", **rest: object) -> Operation:
        self.operations.append(Operation(next(self._ids), kind, key, *at, **rest))  # type: ignore[arg-type]
        return self.operations[-1]

    def put(self, value: str, at: tuple[int, int], revision: int, before: Pair | None, key: str = "a") -> None:
        self._add(Kind.PUT, at, key=key, value=value, answer=Answer(revision, changed=True, before=before))

    def get(self, at: tuple[int, int], revision: int, found: Pair | None, *, is_serializable: bool = False) -> None:
        answer = Answer(revision, changed=False, before=found)
        self._add(Kind.GET, at, answer=answer, is_serializable=is_serializable)

    def delete(self, at: tuple[int, int], revision: int, before: Pair | None) -> None:
        self._add(Kind.DELETE, at, answer=Answer(revision, changed=before is not None, before=before))

    def cas(self, value: str, mod: int, at: tuple[int, int], revision: int, before: Pair | None) -> None:
        changed = mod == (before.mod if before else 0)
        expects = Expectation(Target.MOD, mod)
        self._add(Kind.CAS, at, value=value, expects=expects, answer=Answer(revision, changed, before))

    def unknown(self, kind: Kind, at: int, value: str = "", expects: Expectation | None = None) -> None:
        self._add(kind, (at, FOREVER), value=value, outcome=INFO, expects=expects)

    def failed(self, value: str, at: tuple[int, int]) -> None:
        self._add(Kind.PUT, at, value=value, outcome=FAIL)

    @property
    def findings(self) -> Findings:
        return RegisterCheck(self.operations).findings

    @property
    def broken(self) -> dict[str, int]:
        return {name: number for name, number in self.findings.violations.items() if number}


V1 = Pair("v1", 2, 2, 1)
V2 = Pair("v2", 2, 3, 2)


def right() -> Told:
    told = Told()
    told.put("v1", (0, 10), 2, None)
    told.put("v2", (5, 20), 3, V1)
    told.get((12, 22), 2, V1)
    told.cas("v3", 3, (25, 30), 4, V2)
    told.cas("v4", 3, (31, 35), 4, Pair("v3", 2, 4, 3))
    told.delete((36, 40), 5, Pair("v3", 2, 4, 3))
    told.get((41, 45), 5, None)
    told.get((46, 50), 3, V2, is_serializable=True)
    told.failed("v5", (51, 52))
    told.unknown(Kind.PUT, 53, "v6")
    return told


def test_a_right_history_is_valid_and_counted() -> None:
    assert not right().broken
    assert right().findings.counts == {"operations": 8, "recovered": 0, "searched": 0, "undecided": 0}


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(1, 7), st.sampled_from([0.0, 0.3, 0.8]), st.sampled_from([0.0, 0.5, 1.0]))
def test_the_check_agrees_with_trying_every_order(seed: int, size: int, unknown: float, shown: float) -> None:
    random = Random(seed)
    history = Maker(seed, size, unknown=unknown, shown=shown).history()
    assert RegisterCheck(history).findings.valid
    for _ in range(3):
        history = spoiled(history, random)
        assert RegisterCheck(history).findings.valid == may_be_linearizable(history)


def test_a_read_of_less_than_was_known_is_stale() -> None:
    told = right()
    told.get((60, 70), 3, V2)
    assert told.broken == {"stale_reads": 1}


def test_a_serializable_read_may_be_of_the_past_and_makes_known_what_it_shows() -> None:
    told = Told()
    told.put("v1", (0, 10), 2, None)
    told.unknown(Kind.PUT, 11, "v2")
    told.get((12, 13), 1, None, is_serializable=True)
    told.get((14, 15), 3, V2, is_serializable=True)
    told.get((16, 17), 2, V1)
    assert told.broken == {"stale_reads": 1}


def test_a_serializable_read_of_what_was_not_invoked_is_found() -> None:
    told = Told()
    told.get((0, 5), 2, V1, is_serializable=True)
    told.put("v1", (6, 10), 2, None)
    assert told.broken == {"reordered_writes": 1}


def test_a_write_before_one_that_was_completed_earlier_is_reordered() -> None:
    told = Told()
    told.put("v2", (0, 10), 3, V1)
    told.put("v1", (11, 20), 2, None)
    assert told.broken == {"reordered_writes": 1}


def test_the_order_of_two_keys_counts_as_well() -> None:
    told = Told()
    told.put("v1", (0, 10), 3, None, key="a")
    told.put("v2", (11, 20), 2, None, key="b")
    assert told.broken == {"reordered_writes": 1}


@pytest.mark.parametrize(
    "found", [None, Pair("v1", 2, 2, 2), Pair("v1", 1, 2, 1), V2], ids=["nothing", "version", "creation", "the next"]
)
def test_a_wrong_answer_is_found(found: Pair | None) -> None:
    told = Told()
    told.put("v1", (0, 10), 2, None)
    told.put("v2", (0, 10), 3, V1)
    told.get((0, 10), 2, found)
    assert told.broken == {"wrong_answers": 1}


def test_a_lost_update_is_found() -> None:
    told = Told()
    told.put("v1", (0, 10), 2, None)
    told.cas("v2", 2, (11, 20), 3, V1)
    told.cas("v3", 2, (11, 20), 4, V1)
    assert told.broken == {"wrong_answers": 1}


def test_a_compare_and_set_that_should_not_have_taken_place_is_found() -> None:
    told = Told()
    told.put("v1", (0, 10), 2, None)
    told.cas("v2", 2, (11, 20), 3, V1)
    told.operations[-1] = replace(told.operations[-1], expects=Expectation(Target.MOD, 7))
    assert told.broken == {"wrong_answers": 1}


def test_a_value_that_nobody_wrote_is_found() -> None:
    told = Told()
    told.get((0, 10), 2, V1)
    assert told.broken["unwritten_values"] == 1


def test_a_value_that_surely_failed_is_found() -> None:
    told = Told()
    told.failed("v1", (0, 5))
    told.get((6, 10), 2, V1)
    assert told.broken["unwritten_values"] == 1


def test_a_value_of_another_key_is_found() -> None:
    told = Told()
    told.put("v1", (0, 5), 2, None, key="b")
    told.get((6, 10), 2, V1)
    assert told.broken["unwritten_values"] == 1


def test_an_operation_that_was_carried_out_twice_is_found() -> None:
    told = Told()
    told.put("v1", (0, 10), 3, None)
    told.get((6, 10), 2, V1)
    assert told.broken["doubled_writes"] == 1


def test_an_operation_of_unknown_outcome_that_was_carried_out_twice_is_found() -> None:
    told = Told()
    told.unknown(Kind.PUT, 0, "v1")
    told.get((6, 10), 2, V1)
    told.get((11, 20), 3, Pair("v1", 2, 3, 2))
    assert told.broken["doubled_writes"] == 1


def test_two_writes_at_one_revision_are_found() -> None:
    told = Told()
    told.put("v1", (0, 10), 2, None, key="a")
    told.put("v2", (0, 10), 2, None, key="b")
    assert told.broken == {"shared_revisions": 1}


# Unknown outcomes -------------------------------------------------------------------------------------------------


def test_what_a_read_shows_of_an_unknown_write_holds_from_then_on() -> None:
    told = Told()
    told.unknown(Kind.PUT, 0, "v1")
    told.get((6, 10), 2, V1)
    assert not told.broken
    assert told.findings.counts["recovered"] == 1
    told.get((11, 20), 1, None)
    assert told.broken == {"stale_reads": 1}


def test_an_unknown_delete_explains_what_is_gone_and_a_delete_that_came_later_does_not() -> None:
    told = Told()
    told.put("v1", (0, 10), 2, None)
    told.get((20, 30), 3, None)
    wrong, late = told, Told()
    assert wrong.broken == {"wrong_answers": 1}
    late.operations = list(told.operations)
    late.unknown(Kind.DELETE, 31)
    assert late.broken == {
        "wrong_answers": 1,
    }
    told.unknown(Kind.DELETE, 15)
    assert not told.broken
    assert told.findings.counts["searched"] == 1


def test_one_unknown_delete_does_not_explain_two() -> None:
    told = Told()
    told.put("v1", (0, 10), 2, None)
    told.get((20, 30), 3, None)
    told.put("v2", (31, 40), 4, None)
    told.get((41, 50), 5, None)
    told.unknown(Kind.DELETE, 15)
    assert "wrong_answers" in told.broken
    told.unknown(Kind.DELETE, 16)
    assert not told.broken


def test_an_unknown_write_needs_a_revision_of_its_own() -> None:
    told = Told()
    told.put("v1", (0, 10), 2, None)
    told.unknown(Kind.DELETE, 15)
    told.get((20, 30), 2, None)
    assert told.broken == {"wrong_answers": 1}


def test_two_keys_do_not_take_one_revision() -> None:
    told = Told()
    told.put("v1", (0, 10), 2, None, key="a")
    told.put("v2", (0, 10), 3, None, key="b")
    for key in ("a", "b"):
        told._add(Kind.DELETE, (15, FOREVER), key=key, outcome=INFO)
        told._add(Kind.GET, (20, 30), key=key, answer=Answer(4, changed=False, before=None))
    assert told.broken == {"wrong_answers": 2}


def test_an_unknown_compare_and_set_is_placed_only_where_its_expectation_holds() -> None:
    told = Told()
    told.put("v1", (0, 10), 2, None)
    told.put("v3", (20, 30), 4, Pair("v2", 2, 3, 2))
    told.unknown(Kind.CAS, 15, "v2", Expectation(Target.VERSION, 1))
    assert not told.broken
    told.operations[-1] = replace(told.operations[-1], expects=Expectation(Target.VERSION, 2))
    assert told.broken == {"wrong_answers": 1}


def test_a_search_that_takes_too_long_is_undecided_and_no_violation() -> None:
    told = Told()
    for number in range(12):
        told.unknown(Kind.CAS, 0, f"u{number}", Expectation(Target.VERSION, number // 2))
    told.get((20, 30), 40, Pair("u20", 30, 40, 9))
    told.unknown(Kind.PUT, 0, "u20")
    findings = RegisterCheck(told.operations, budget=5).findings
    assert findings.valid
    assert findings.counts["undecided"] == 1


def test_a_long_history_with_unknown_operations_takes_no_long_search() -> None:
    history = Maker(1, 20_000, unknown=0.05, shown=1.0).history()
    findings = RegisterCheck(history).findings
    assert findings.valid
    assert findings.counts["recovered"] > 100
    assert not findings.counts["undecided"]


def test_every_violation_is_named_in_the_findings() -> None:
    assert tuple(right().findings.violations) == VIOLATIONS
