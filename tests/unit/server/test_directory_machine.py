"""What the directory answers survives as bytes: a retry gets it again."""

from __future__ import annotations

import pytest

from dledger.common.errors import Code
from dledger.common.types import Member, NodeId
from dledger.server.directory_machine import DirectoryMachine, GroupRefused, create_command

FOUNDERS = (Member(NodeId("n1"), "h:1", True, b"disk", 3, 7),)


def test_an_entry_comes_back_as_it_was() -> None:
    machine = DirectoryMachine()
    entry = machine.apply(create_command("orders", FOUNDERS))
    assert machine.decode_answer(machine.encode_answer(entry)) == entry


def test_a_refusal_comes_back_with_its_code_and_its_words() -> None:
    machine = DirectoryMachine()
    machine.apply(create_command("orders", FOUNDERS))
    with pytest.raises(GroupRefused) as refused:
        machine.apply(create_command("orders", FOUNDERS))
    again = machine.decode_refusal(machine.encode_refusal(refused.value))
    assert again.refusal.code is Code.GROUP_EXISTS
    assert str(again.refusal) == str(refused.value.refusal)
