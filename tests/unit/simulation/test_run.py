"""A run is a function of its seed, and a watch that sees nothing would be told so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dledger.common.types import NodeId, Term
from tests.simulation.journal import Journal
from tests.simulation.run import MIN_ACKNOWLEDGED, MIN_ELECTIONS, SAFETY_S, run_seed
from tests.simulation.violation import Violation
from tests.simulation.watch import Watch

ROOT = Path(__file__).parents[3]


def digest(seed: int, hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-m", "tests.simulation", "--seed", str(seed)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("seed", [3, 12])
def test_two_runs_of_a_seed_are_the_same_whatever_strings_hash_to(seed: int) -> None:
    first, second = digest(seed, "1"), digest(seed, "2")
    assert first.startswith("trace hash ")
    assert first == second


def test_two_seeds_differ_and_each_has_its_share_of_trouble() -> None:
    outcomes = [run_seed(seed) for seed in (2, 7)]
    for outcome in outcomes:
        assert not outcome.failure
        assert outcome.elections >= MIN_ELECTIONS
        assert outcome.acknowledged >= MIN_ACKNOWLEDGED
        assert outcome.simulated_s >= SAFETY_S
        assert outcome.hits["fault sectors lost"] > 0
    assert outcomes[0].digest != outcomes[1].digest


def test_two_leaders_of_a_term_are_seen() -> None:
    watch = Watch()
    watch.leads(NodeId("n0"), Term(2))
    with pytest.raises(Violation, match="election safety"):
        watch.leads(NodeId("n1"), Term(2))


def test_two_votes_in_a_term_are_seen_over_restarts() -> None:
    watch = Watch()
    watch.voted("n0/1", Term(2), NodeId("n0"), NodeId("n1"))
    with pytest.raises(Violation, match="one vote a term"):
        watch.voted("n0/1", Term(2), NodeId("n0"), NodeId("n2"))


def test_a_lost_a_moved_and_a_doubled_record_are_seen() -> None:
    journal = Journal(attempted={b"a", b"b"})
    journal.acknowledge(0, [b"a", b"b"])
    journal.check([b"a", b"b"], 0, who="n0")
    for committed, invariant in (
        ([b"a"], "no acknowledged loss"),
        ([b"b", b"a"], "no acknowledged loss"),
        ([b"a", b"b", b"a"], "no duplicates"),
    ):
        with pytest.raises(Violation, match=invariant):
            journal.check(committed, 0, who="n0")


def test_an_append_counts_once_however_many_records_it_has() -> None:
    journal = Journal()
    journal.acknowledge(0, [b"a", b"b"])
    journal.acknowledge(2, [b"c"])
    assert journal.appends == 2


def test_what_nobody_appended_and_what_was_refused_are_seen() -> None:
    journal = Journal(attempted={b"a"}, refused={b"a"})
    with pytest.raises(Violation, match="what is read was appended"):
        journal.saw(0, b"x", who="n0")
    with pytest.raises(Violation, match="what failed is not there"):
        journal.saw(0, b"a", who="n0")


def test_what_was_read_once_is_what_is_read_and_acknowledged_ever_after() -> None:
    journal = Journal(attempted={b"a", b"b"})
    journal.saw(0, b"a", who="n0")
    with pytest.raises(Violation, match="one value an index"):
        journal.saw(0, b"b", who="n1")
    with pytest.raises(Violation, match="one value an index"):
        journal.acknowledge(0, [b"b"])


def test_a_read_reaches_as_far_as_the_one_before() -> None:
    journal = Journal()
    journal.acknowledge(0, [b"a"])
    journal.read_up_to = 5
    assert journal.least_read == 5
    journal.acknowledge(1, [b"b"] * 7)
    assert journal.least_read == 7
