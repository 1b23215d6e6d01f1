"""What befalls messages is counted where it does: an installed rule that does nothing would count for nothing."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from dledger.common.types import NodeId, Position, Term
from dledger.raft.messages import Heartbeat
from dledger.testing.network_faults import Rule
from tests.simulation.network import CountedFaults

A, B = NodeId("a"), NodeId("b")
HEARTBEAT = Heartbeat("default", Term(1), Position(0), 1)


@pytest.mark.parametrize(
    ("rule", "counted"),
    [
        (Rule(), {}),
        (Rule(drop_share=1.0), {"fault message lost": 1}),
        (Rule(duplicate_share=1.0), {"fault message doubled": 1}),
        (Rule(delay_s=0.1), {"fault message late": 1}),
        (Rule(reorder_share=1.0), {"fault message out of order": 1, "fault message late": 1}),
    ],
)
def test_what_a_rule_does_is_counted(rule: Rule, counted: dict[str, int]) -> None:
    hits = Counter[str]()
    faults = CountedFaults(Random(1), hits)
    faults.add(rule)
    faults.judge(A, B, HEARTBEAT)
    assert +hits == Counter(counted)


def test_what_a_cut_keeps_back_is_counted_one_way() -> None:
    hits = Counter[str]()
    faults = CountedFaults(Random(1), hits)
    faults.cut(A, B)
    faults.judge(A, B, HEARTBEAT)
    faults.judge(B, A, HEARTBEAT)
    assert +hits == Counter({"fault message cut off": 1})
