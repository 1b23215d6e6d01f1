"""The records of a state machine's log, as values. proto/dledger/v1/statemachine.proto says what they mean."""

from __future__ import annotations

from typing import NamedTuple

from google.protobuf.message import DecodeError

from dledger.common.errors import Code, error
from dledger.v1 import statemachine_pb2 as pb


class Command(NamedTuple):
    payload: bytes
    version: int
    submitter: int
    request: int
    term: int = 0
    """It counts only if its frame is of this term; 0: of any."""


class Begin(NamedTuple):
    """A checkpoint of the state as of here begins. Its id is the index of this record."""

    submitter: int
    """Who writes it, and takes a view of the state here."""


class Part(NamedTuple):
    id: int
    number: int
    data: bytes


class End(NamedTuple):
    id: int
    parts: int
    size_bytes: int
    digest: bytes


MachineRecord = Command | Begin | Part | End


def encode(record: MachineRecord) -> bytes:
    match record:
        case Command():
            message = pb.MachineRecord(command=pb.Command(**record._asdict()))
        case Begin():
            message = pb.MachineRecord(begin=pb.CheckpointBegin(**record._asdict()))
        case Part():
            message = pb.MachineRecord(part=pb.CheckpointPart(**record._asdict()))
        case End():
            message = pb.MachineRecord(end=pb.CheckpointEnd(**record._asdict()))
    return message.SerializeToString()


def decode(index: int, value: bytes) -> MachineRecord:
    """Raises UNSUPPORTED_VERSION for a kind that this program does not know, CORRUPT_LOG for what is no such record."""
    try:
        message = pb.MachineRecord.FromString(value)
    except DecodeError:
        raise error(Code.CORRUPT_LOG, f"record {index} is none of a state machine: the log holds other data") from None
    match message.WhichOneof("kind"):
        case "command":
            found = message.command
            return Command(found.payload, found.version, found.submitter, found.request, found.term)
        case "begin":
            return Begin(message.begin.submitter)
        case "part":
            return Part(message.part.id, message.part.number, message.part.data)
        case "end":
            return End(message.end.id, message.end.parts, message.end.size_bytes, message.end.digest)
    raise error(
        Code.UNSUPPORTED_VERSION,
        f"record {index} is of a kind that this program does not know: start the newer one that wrote it",
    )
