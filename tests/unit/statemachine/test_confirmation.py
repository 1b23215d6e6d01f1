"""When a checkpoint may replace the log before it: by enumeration."""

from __future__ import annotations

from itertools import product

import pytest

from dledger.common.types import NodeId
from dledger.statemachine.confirmation import Judgement, judge

VOTERS = [NodeId(f"n{at}") for at in range(5)]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_only_a_majority_of_voters_with_this_nodes_own_digest_confirms(size: int) -> None:
    voters = VOTERS[:size]
    for digests in product((b"", b"a", b"b"), repeat=size):
        said = dict(zip(voters, digests, strict=True))
        own, reports = said[voters[0]], {each: digest for each, digest in said.items() if each != voters[0]}
        found = judge(own, own, reports, voters, voters[0])
        majorities = [each for each in (b"a", b"b") if list(digests).count(each) > size / 2]
        if not own or not majorities:
            assert found is Judgement.OPEN
        else:
            assert found is (Judgement.CONFIRMED if majorities == [own] else Judgement.CONTRADICTED)


def test_the_word_of_who_is_no_voter_does_not_count() -> None:
    reports = {NodeId("learner"): b"a", NodeId("n1"): b""}
    assert judge(b"a", b"a", reports, VOTERS[:3], VOTERS[0]) is Judgement.OPEN


def test_a_learner_that_leads_nobody_confirms_nothing_alone() -> None:
    assert judge(b"a", b"a", {}, VOTERS[1:2], VOTERS[0]) is Judgement.OPEN


def test_a_checkpoint_that_says_something_else_is_not_confirmed() -> None:
    """Its writer's memory was damaged, and the others, of whom one leads now, agree."""
    assert judge(b"a", b"b", {VOTERS[1]: b"a"}, VOTERS[:3], VOTERS[0]) is Judgement.OPEN
