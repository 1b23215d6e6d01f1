"""What the directory makes of what leaders tell it of their groups' members."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

import pytest

from dledger.common.errors import Code
from dledger.common.types import Member, NodeId, Position, Term
from dledger.node.groups import LogPosition
from dledger.server.directory_machine import (
    DirectoryMachine,
    GroupEntry,
    GroupMembers,
    GroupRefused,
    create_command,
    encoded,
    members_command,
    remove_command,
    seal_command,
)

FOUNDERS = (Member(NodeId("n1"), "h:1", True, b"disk", 3, 7),)


def members(*node_ids: str) -> tuple[Member, ...]:
    return tuple(Member(NodeId(each), f"{each}:1") for each in node_ids)


def told(*node_ids: str, changed_at: int, position: int, term: int = 3) -> GroupMembers:
    return GroupMembers(members(*node_ids), Position(changed_at), LogPosition(Position(position), Term(term)))


def with_group(*founders: str) -> tuple[DirectoryMachine, GroupEntry]:
    machine = DirectoryMachine()
    return machine, machine.apply(create_command("orders", members(*founders)))


def test_a_group_begins_with_its_founders() -> None:
    _, entry = with_group("n0", "n1")
    assert entry.members == entry.founders == members("n0", "n1")
    assert entry.names(NodeId("n1"))
    assert not entry.known.changed_at


def test_the_record_follows_the_log_and_takes_no_older_news() -> None:
    machine, entry = with_group("n0", "n1")
    later, earlier = told("n0", "n2", changed_at=9, position=12), told("n0", "n1", "n2", changed_at=7, position=8)
    assert machine.apply(encoded(members_command(entry, later))).known == later
    assert machine.apply(encoded(members_command(entry, earlier))).known == later
    assert not machine.groups["orders"].names(NodeId("n1"))
    assert machine.groups["orders"].founders == members("n0", "n1"), "with whom it was founded does not change"


def test_news_of_another_group_of_the_name_is_refused() -> None:
    machine, entry = with_group("n0")
    machine.apply(seal_command(entry))
    machine.apply(remove_command(entry))
    again = machine.apply(create_command("orders", members("n5")))
    with pytest.raises(GroupRefused):
        machine.apply(encoded(members_command(entry, told("n0", changed_at=1, position=1))))
    assert machine.groups["orders"] == again


async def test_a_checkpoint_carries_the_members() -> None:
    machine, entry = with_group("n0", "n1")
    machine.apply(create_command("bills", members("n2")))
    machine.apply(encoded(members_command(entry, told("n0", "n2", changed_at=9, position=12))))
    restored = DirectoryMachine()
    await restored.restore(parts_of(machine.checkpoint()))
    assert restored.groups == machine.groups
    assert restored.apply(create_command("more", members("n0"))).id == entry.id + 2


async def parts_of(parts: Iterable[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


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
