"""Nodes ask each other at several addresses, in turn."""

from __future__ import annotations

import pytest

from dledger.client.between_nodes import _in_turn
from dledger.common.errors import Code, DLedgerError, NotLeader, Unavailable, UnknownGroup, error
from dledger.rpc.client.channels import Endpoint


class Nodes:
    """What each address answers."""

    def __init__(self, **answers: DLedgerError | int) -> None:
        self._answers = answers
        self.asked: list[str] = []

    async def ask(self, endpoint: Endpoint) -> int:
        name = endpoint.address.removesuffix(":1")
        self.asked.append(name)
        answer = self._answers[name]
        if isinstance(answer, DLedgerError):
            raise answer
        return answer


async def test_the_first_that_answers_as_the_leader_does_is_the_last_that_is_asked() -> None:
    nodes = Nodes(a=error(Code.NOT_LEADER, "b leads"), b=Unavailable("it is away"), c=7, d=8)
    assert await _in_turn(["a:1", "b:1", "a:1", "c:1", "d:1"], nodes.ask) == 7
    assert nodes.asked == ["a", "b", "c"]


async def test_a_node_of_another_cluster_is_passed_over() -> None:
    nodes = Nodes(a=error(Code.UNKNOWN_CLUSTER, "a belongs to another one"), b=7)
    assert await _in_turn(["a:1", "b:1"], nodes.ask) == 7


async def test_the_leaders_refusal_is_the_answer() -> None:
    nodes = Nodes(a=error(Code.GROUP_SEALED, "it is being removed"), b=7)
    with pytest.raises(UnknownGroup):
        await _in_turn(["a:1", "b:1"], nodes.ask)


async def test_why_nobody_answered_is_said() -> None:
    with pytest.raises(NotLeader):
        await _in_turn(["a:1"], Nodes(a=error(Code.NOT_LEADER, "b leads")).ask)
    with pytest.raises(Unavailable, match="no address of another node is known"):
        await _in_turn([], Nodes().ask)
