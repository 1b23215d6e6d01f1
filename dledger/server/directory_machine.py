"""The directory of groups, as a state machine: the groups there are, and the founders of each.

The record of a group has its founders and its members, as its leader told them last. The group's own log has the last
word on its members, and the record follows. An id is never used twice, so a group that was removed and another of its
name are never mixed up.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import NamedTuple

from dledger.common.errors import Code, DLedgerError, error, quoted
from dledger.common.types import DEFAULT_GROUP, META_GROUP, Member, NodeId, Position, Term, group_key
from dledger.log.frame.control import member_record, members_of
from dledger.node.groups import LogPosition
from dledger.statemachine.api import Refused, StateMachine
from dledger.v1 import directory_pb2 as pb

MACHINE_NAME = "directory"
FIRST_ID = 16
"""Smaller ids are kept for groups of the system."""
GROUPS_PER_PART = 200


class GroupRefused(Refused):
    """A command that the directory does not carry out, and why."""

    def __init__(self, refusal: DLedgerError) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


def no_group(name: str) -> DLedgerError:
    return error(Code.UNKNOWN_GROUP, f"there is no group {quoted(name)}: see `dledger group list`")


class GroupMembers(NamedTuple):
    """The members of a group, by the committed part of its log."""

    members: tuple[Member, ...]
    changed_at: Position = Position(0)
    """Of the last change of them; 0: there was none."""
    as_of: LogPosition = LogPosition(Position(0), Term(0))
    """How far the log was committed then: no frame up to there changed them later."""


class GroupEntry(NamedTuple):
    """One group."""

    name: str
    id: int
    founders: tuple[Member, ...]
    known: GroupMembers
    is_sealing: bool = False
    """It is being removed: its log is sealed first, then its record goes."""

    @property
    def members(self) -> tuple[Member, ...]:
        """As the group's leader told them last."""
        return self.known.members

    def names(self, node_id: NodeId) -> bool:
        """Whether that node is a member."""
        return any(each.id == node_id for each in self.members)

    @property
    def key(self) -> str:
        """Its key among nodes and in their directories: another one for each group that ever was."""
        return group_key(self.name, self.id)


class DirectoryMachine(StateMachine):
    """Invariants: names are unique; ids only rise; no id is both in ``groups`` and in ``removed_ids``."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupEntry] = {}
        """By name."""
        self.removed_ids: set[int] = set()
        self._next_id = FIRST_ID

    # Commands ----------------------------------------------------------------------------------------------------

    def apply(self, command: bytes) -> GroupEntry:
        """The entry that the command made or changed, or removed. Raises GroupRefused."""
        message = pb.DirectoryCommand.FromString(command)
        match message.WhichOneof("kind"):
            case "create":
                return self._create(message.create)
            case "seal":
                return self._seal(message.seal.name, message.seal.id)
            case "remove":
                return self._remove(message.remove.name, message.remove.id)
            case "members":
                return self._record_members(message.members)
        raise error(Code.UNSUPPORTED_VERSION, "the directory does not know this command: start the newer program")

    def _create(self, wanted: pb.CreateGroupCommand) -> GroupEntry:
        self.check_free(wanted.name)
        founders = members_of(wanted.founders)
        entry = GroupEntry(wanted.name, self._next_id, founders, GroupMembers(founders))
        self._next_id += 1
        self.groups[entry.name] = entry
        return entry

    def _seal(self, name: str, group_id: int) -> GroupEntry:
        entry = self.groups[name] = self.removable(name, group_id)._replace(is_sealing=True)
        return entry

    def _remove(self, name: str, group_id: int) -> GroupEntry:
        entry = self._known(name)
        if entry.id != group_id or not entry.is_sealing:
            raise GroupRefused(error(Code.UNKNOWN_GROUP, f"group {quoted(name)} of id {group_id} is not being removed"))
        del self.groups[name]
        self.removed_ids.add(group_id)
        return entry

    def _record_members(self, told: pb.RecordMembersCommand) -> GroupEntry:
        entry = self._known(told.name)
        if entry.id != told.id:
            raise GroupRefused(no_group(f"{told.name}.{told.id}"))
        known = _members_in(told.members)
        if known.as_of.position > entry.known.as_of.position:
            entry = self.groups[entry.name] = entry._replace(known=known)
        return entry

    # Refusals: also asked for beforehand, by a caller that only wants to know -------------------------------------

    def check_free(self, name: str) -> None:
        """Raises GroupRefused if a group has that name."""
        known = self.groups.get(name)
        if name == META_GROUP or known is not None:
            what = "is being removed" if known is not None and known.is_sealing else "exists"
            raise GroupRefused(error(Code.GROUP_EXISTS, f"group {quoted(name)} {what}: choose another name"))

    def removable(self, name: str, group_id: int = 0) -> GroupEntry:
        """The group of that name, and of that id unless it is 0. Raises GroupRefused if it does not exist, if it stays,
        or if it is another one."""
        if name in (META_GROUP, DEFAULT_GROUP):
            raise GroupRefused(error(Code.UNSUPPORTED, f"group {name!r} is the cluster's own, and stays"))
        entry = self._known(name)
        if group_id not in (0, entry.id):
            text = f"group {quoted(name)} has id {entry.id} by now, not {group_id}: it was deleted and made again"
            raise GroupRefused(error(Code.CHANGE_REFUSED, text))
        return entry

    def _known(self, name: str) -> GroupEntry:
        entry = self.groups.get(name)
        if entry is None:
            raise GroupRefused(no_group(name))
        return entry

    # Answers -----------------------------------------------------------------------------------------------------

    def encode_answer(self, answer: GroupEntry) -> bytes:
        return _record(answer).SerializeToString(deterministic=True)

    def decode_answer(self, data: bytes) -> GroupEntry:
        return _entry(pb.GroupEntry.FromString(data))

    def encode_refusal(self, refusal: Refused) -> bytes:
        assert isinstance(refusal, GroupRefused), "the directory refuses nothing otherwise"
        return f"{refusal.refusal.code.value} {refusal.refusal}".encode()

    def decode_refusal(self, data: bytes) -> GroupRefused:
        code, _, message = data.decode().partition(" ")
        return GroupRefused(error(Code(code), message))

    # Checkpoints -------------------------------------------------------------------------------------------------

    def checkpoint(self) -> Iterator[bytes]:
        entries = [self.groups[name] for name in sorted(self.groups)]
        first = pb.DirectoryPart(next_id=self._next_id, removed_ids=sorted(self.removed_ids))
        cuts = range(0, len(entries), GROUPS_PER_PART)
        parts = [first, *(pb.DirectoryPart(groups=map(_record, entries[at : at + GROUPS_PER_PART])) for at in cuts)]
        return iter([part.SerializeToString(deterministic=True) for part in parts])

    async def restore(self, parts: AsyncIterator[bytes]) -> None:
        self.__init__()  # type: ignore[misc]
        async for data in parts:
            part = pb.DirectoryPart.FromString(data)
            self._next_id = part.next_id or self._next_id
            self.removed_ids.update(part.removed_ids)
            for each in part.groups:
                self.groups[each.name] = _entry(each)


def _record(entry: GroupEntry) -> pb.GroupEntry:
    return pb.GroupEntry(
        name=entry.name,
        id=entry.id,
        founders=map(member_record, entry.founders),
        is_sealing=entry.is_sealing,
        members=_members_record(entry.known) if entry.known.changed_at else None,
    )


def _members_record(known: GroupMembers) -> pb.GroupMembers:
    members = map(member_record, known.members)
    position, term = known.as_of
    return pb.GroupMembers(members=members, changed_at=known.changed_at, position=position, term=term)


def _members_in(record: pb.GroupMembers) -> GroupMembers:
    as_of = LogPosition(Position(record.position), Term(record.term))
    return GroupMembers(members_of(record.members), Position(record.changed_at), as_of)


def _entry(record: pb.GroupEntry) -> GroupEntry:
    founders = members_of(record.founders)
    known = _members_in(record.members) if record.HasField("members") else GroupMembers(founders)
    return GroupEntry(record.name, record.id, founders, known, record.is_sealing)


def create_command(name: str, founders: Sequence[Member]) -> bytes:
    create = pb.CreateGroupCommand(name=name, founders=map(member_record, founders))
    return pb.DirectoryCommand(create=create).SerializeToString()


def seal_command(entry: GroupEntry) -> bytes:
    return pb.DirectoryCommand(seal=pb.SealGroupCommand(name=entry.name, id=entry.id)).SerializeToString()


def remove_command(entry: GroupEntry) -> bytes:
    return pb.DirectoryCommand(remove=pb.RemoveGroupCommand(name=entry.name, id=entry.id)).SerializeToString()


def encoded(members: pb.RecordMembersCommand) -> bytes:
    return pb.DirectoryCommand(members=members).SerializeToString()


def members_command(entry: GroupEntry, known: GroupMembers) -> pb.RecordMembersCommand:
    """To be told to the leader of the directory."""
    return pb.RecordMembersCommand(name=entry.name, id=entry.id, members=_members_record(known))
