"""The directory of groups, as a state machine: which groups there are, and with whom each was founded.

The record of a group says what is wanted. Who its members are by now is the word of the group's own log. An id is
never used twice, so a group that was removed and another of its name are never mixed up.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import NamedTuple

from dledger.common.errors import Code, DLedgerError, error, quoted
from dledger.common.types import DEFAULT_GROUP, META_GROUP, Member
from dledger.log.frame.control import member_record, members_of
from dledger.statemachine.api import Refused, StateMachine
from dledger.v1 import directory_pb2 as pb

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


class GroupEntry(NamedTuple):
    """One group."""

    name: str
    id: int
    founders: tuple[Member, ...]
    is_sealing: bool = False
    """It is being removed: its log is sealed first, then its record goes."""

    @property
    def key(self) -> str:
        """What nodes call it among themselves and in their directories: another one for each group that ever was."""
        return group_key(self.name, self.id)


def group_key(name: str, group_id: int) -> str:
    return name if name in (META_GROUP, DEFAULT_GROUP) else f"{name}.{group_id}"


def id_of(key: str) -> int | None:
    """The id in a key; None for the groups that cannot be removed."""
    _, dot, number = key.rpartition(".")
    return int(number) if dot else None


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
                return self._seal(message.seal.name)
            case "remove":
                return self._remove(message.remove.name, message.remove.id)
        raise error(Code.UNSUPPORTED_VERSION, "the directory does not know this command: start the newer program")

    def _create(self, wanted: pb.CreateGroupCommand) -> GroupEntry:
        self.check_free(wanted.name)
        entry = GroupEntry(wanted.name, self._next_id, members_of(wanted.founders))
        self._next_id += 1
        self.groups[entry.name] = entry
        return entry

    def _seal(self, name: str) -> GroupEntry:
        entry = self.groups[name] = self.removable(name)._replace(is_sealing=True)
        return entry

    def _remove(self, name: str, group_id: int) -> GroupEntry:
        entry = self._known(name)
        if entry.id != group_id or not entry.is_sealing:
            raise GroupRefused(error(Code.UNKNOWN_GROUP, f"group {quoted(name)} of id {group_id} is not being removed"))
        del self.groups[name]
        self.removed_ids.add(group_id)
        return entry

    # What is refused: also asked beforehand, by who only wants to know --------------------------------------------

    def check_free(self, name: str) -> None:
        """Raises GroupRefused where a group has that name."""
        known = self.groups.get(name)
        if name == META_GROUP or known is not None:
            what = "is being removed" if known is not None and known.is_sealing else "exists"
            raise GroupRefused(error(Code.GROUP_EXISTS, f"group {quoted(name)} {what}: choose another name"))

    def removable(self, name: str) -> GroupEntry:
        """Raises GroupRefused for a group that does not exist, or stays."""
        if name in (META_GROUP, DEFAULT_GROUP):
            raise GroupRefused(error(Code.UNSUPPORTED, f"group {name!r} is the cluster's own, and stays"))
        return self._known(name)

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
    founders = map(member_record, entry.founders)
    return pb.GroupEntry(name=entry.name, id=entry.id, founders=founders, is_sealing=entry.is_sealing)


def _entry(record: pb.GroupEntry) -> GroupEntry:
    return GroupEntry(record.name, record.id, members_of(record.founders), record.is_sealing)


def create_command(name: str, founders: Sequence[Member]) -> bytes:
    create = pb.CreateGroupCommand(name=name, founders=map(member_record, founders))
    return pb.DirectoryCommand(create=create).SerializeToString()


def seal_command(name: str) -> bytes:
    return pb.DirectoryCommand(seal=pb.SealGroupCommand(name=name)).SerializeToString()


def remove_command(entry: GroupEntry) -> bytes:
    return pb.DirectoryCommand(remove=pb.RemoveGroupCommand(name=entry.name, id=entry.id)).SerializeToString()
