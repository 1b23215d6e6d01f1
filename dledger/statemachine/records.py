"""The records of a state machine's log, as values. proto/dledger/v1/statemachine.proto says what they mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from dledger.common.errors import Code, error
from dledger.v1 import statemachine_pb2 as pb


class Command(NamedTuple):
    payload: bytes
    version: int
    submitter: int
    request: int
    """In a session: which of its commands this is, from 1."""
    term: int = 0
    """It counts only if its frame is of this term; 0: of any."""
    session: int = 0
    """The session that it belongs to; 0: none."""
    acknowledged: int = 0
    """The submitter needs the answers to the session's requests up to here no more."""


class OpenSession(NamedTuple):
    """Makes a session; its id is the index of this record plus 1."""

    submitter: int
    request: int


class EndSession(NamedTuple):
    session: int
    term: int = 0
    """It counts only if its frame is of this term; 0: of any."""


class Version(NamedTuple):
    """All voters know commands up to this version."""

    version: int


class Begin(NamedTuple):
    """A checkpoint of the state as of here begins. Its id is the index of this record."""

    submitter: int
    """The writer, which takes a view of the state here."""


class Part(NamedTuple):
    id: int
    number: int
    data: bytes


class Head(NamedTuple):
    """A piece of the sessions and the version (``Sessions.encode``)."""

    id: int
    number: int
    data: bytes


class End(NamedTuple):
    id: int
    parts: int
    size_bytes: int
    digest: bytes
    heads: int = 0


class Confirmed(NamedTuple):
    """A majority of the voters applied their way to the checkpoint's BEGIN, and came to its digest."""

    id: int
    digest: bytes


MachineRecord = Command | Begin | Part | Head | End | Confirmed | OpenSession | EndSession | Version


def encode(record: MachineRecord) -> bytes:
    match record:
        case Command():
            return _encoded_command(record)
        case Begin():
            message = pb.MachineRecord(begin=pb.CheckpointBegin(**record._asdict()))
        case Part():
            message = pb.MachineRecord(part=pb.CheckpointPart(**record._asdict()))
        case Head():
            message = pb.MachineRecord(head=pb.CheckpointHead(**record._asdict()))
        case End():
            message = pb.MachineRecord(end=pb.CheckpointEnd(**record._asdict()))
        case Confirmed():
            message = pb.MachineRecord(confirmed=pb.CheckpointConfirmed(**record._asdict()))
        case OpenSession():
            message = pb.MachineRecord(open_session=pb.OpenSession(**record._asdict()))
        case EndSession():
            message = pb.MachineRecord(end_session=pb.EndSession(**record._asdict()))
        case Version():
            message = pb.MachineRecord(version=pb.MachineVersion(**record._asdict()))
    return message.SerializeToString()


def _encoded_command(command: Command) -> bytes:
    """Field by field: it is done for every command, and costs a third of the way by keywords."""
    message = pb.MachineRecord()
    fields = message.command
    fields.payload, fields.version, fields.submitter = command.payload, command.version, command.submitter
    fields.request, fields.term = command.request, command.term
    fields.session, fields.acknowledged = command.session, command.acknowledged
    return message.SerializeToString()


def decode(index: int, value: bytes) -> MachineRecord:
    """Raises UNSUPPORTED_VERSION for a kind unknown to this program, CORRUPT_LOG for bytes that are no such record."""
    try:
        message = pb.MachineRecord.FromString(value)
    except DecodeError:
        raise error(Code.CORRUPT_LOG, f"record {index} is none of a state machine: the log holds other data") from None
    kind = message.WhichOneof("kind")
    read = _READ.get(kind or "")
    if read is None:
        raise error(
            Code.UNSUPPORTED_VERSION,
            f"record {index} is of a kind that this program does not know: start the newer one that wrote it",
        )
    return read(getattr(message, kind or ""))


_READ: dict[str, Callable[[Any], MachineRecord]] = {
    "command": lambda it: Command(
        it.payload, it.version, it.submitter, it.request, it.term, it.session, it.acknowledged
    ),
    "begin": lambda it: Begin(it.submitter),
    "part": lambda it: Part(it.id, it.number, it.data),
    "head": lambda it: Head(it.id, it.number, it.data),
    "end": lambda it: End(it.id, it.parts, it.size_bytes, it.digest, it.heads),
    "confirmed": lambda it: Confirmed(it.id, it.digest),
    "version": lambda it: Version(it.version),
    "open_session": lambda it: OpenSession(it.submitter, it.request),
    "end_session": lambda it: EndSession(it.session, it.term),
}
