"""Every refusal, once: its code, gRPC status, exception and exit code. docs/errors.md is printed from ``CODES``.

A code's name is the ``reason`` of the ``google.rpc.ErrorInfo`` (domain ``dledger``) that the server attaches. DLedger's
names are kept where it has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

ERROR_DOMAIN = "dledger"


class Code(Enum):
    """Why something was refused. ``WAIT_QUORUM_ACK_TIMEOUT``, ``TERM_CHANGED`` and ``SESSION_EXPIRED`` say that the
    outcome is unknown."""

    # Where to ask instead, or that it pays to ask again.
    NOT_LEADER = "NOT_LEADER"
    NOT_HERE = "NOT_HERE"
    LEADER_NOT_READY = "LEADER_NOT_READY"
    LEADER_TRANSFERRING = "LEADER_TRANSFERRING"
    LEADER_PENDING_FULL = "LEADER_PENDING_FULL"
    SHUTTING_DOWN = "SHUTTING_DOWN"
    NETWORK_ERROR = "NETWORK_ERROR"
    TIMEOUT = "TIMEOUT"
    # The outcome is unknown.
    WAIT_QUORUM_ACK_TIMEOUT = "WAIT_QUORUM_ACK_TIMEOUT"
    TERM_CHANGED = "TERM_CHANGED"
    SESSION_EXPIRED = "SESSION_EXPIRED"
    # The request is wrong.
    UNEXPECTED_ARGUMENT = "UNEXPECTED_ARGUMENT"
    REQUEST_WITH_EMPTY_BODYS = "REQUEST_WITH_EMPTY_BODYS"
    RECORD_TOO_LARGE = "RECORD_TOO_LARGE"
    BATCH_TOO_LARGE = "BATCH_TOO_LARGE"
    CORRUPT_BATCH = "CORRUPT_BATCH"
    UNSUPPORTED = "UNSUPPORTED"
    UNKNOWN_GROUP = "UNKNOWN_GROUP"
    GROUP_SEALED = "GROUP_SEALED"
    GROUP_EXISTS = "GROUP_EXISTS"
    UNKNOWN_MEMBER = "UNKNOWN_MEMBER"
    INDEX_OUT_OF_RANGE = "INDEX_OUT_OF_RANGE"
    INDEX_LESS_THAN_LOCAL_BEGIN = "INDEX_LESS_THAN_LOCAL_BEGIN"
    # Producers.
    OUT_OF_ORDER = "OUT_OF_ORDER"
    UNKNOWN_PRODUCER = "UNKNOWN_PRODUCER"
    PRODUCER_FENCED = "PRODUCER_FENCED"
    SEQUENCE_CONFLICT = "SEQUENCE_CONFLICT"
    REPEATED_REQUEST = "REPEATED_REQUEST"
    PRODUCERS_FULL = "PRODUCERS_FULL"
    # Conditional appends.
    WRONG_EXPECTED_INDEX = "WRONG_EXPECTED_INDEX"
    # The store.
    COMPACTED = "COMPACTED"
    FUTURE_REVISION = "FUTURE_REVISION"
    LEASE_NOT_FOUND = "LEASE_NOT_FOUND"
    LEASE_EXISTS = "LEASE_EXISTS"
    LEASE_LOST = "LEASE_LOST"
    NO_SPACE = "NO_SPACE"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    STORE_NOT_EMPTY = "STORE_NOT_EMPTY"
    # Leadership by hand.
    FALL_BEHIND_TOO_MUCH = "FALL_BEHIND_TOO_MUCH"
    TAKE_LEADERSHIP_FAILED = "TAKE_LEADERSHIP_FAILED"
    # Membership and settings.
    CHANGE_PENDING = "CHANGE_PENDING"
    CHANGE_REFUSED = "CHANGE_REFUSED"
    # The node.
    DISK_FULL = "DISK_FULL"
    DISK_ERROR = "DISK_ERROR"
    CORRUPT_LOG = "CORRUPT_LOG"
    DIVERGED = "DIVERGED"
    INTERNAL_ERROR = "INTERNAL_ERROR"
    # Between nodes.
    UNEXPECTED_MEMBER = "UNEXPECTED_MEMBER"
    UNKNOWN_CLUSTER = "UNKNOWN_CLUSTER"
    UNSUPPORTED_VERSION = "UNSUPPORTED_VERSION"
    # Before anything was asked.
    CONFIG_ERROR = "CONFIG_ERROR"


class DLedgerError(Exception):
    """Base of every error raised on purpose. ``code`` names the kind of error. ``str()`` is one sentence: the problem,
    and the way to solve it."""

    code: Code = Code.INTERNAL_ERROR

    def __init__(self, message: str, *, code: Code | None = None, metadata: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        self.metadata: dict[str, str] = dict(metadata or {})

    def copy(self) -> DLedgerError:
        """This error once more, for another waiter: raised in two tasks, one error would mix their tracebacks."""
        return CODES[self.code].exception(str(self), code=self.code, metadata=self.metadata)

    @property
    def exit_code(self) -> int:
        """What the command line exits with."""
        return CODES[self.code].exit_code


class NotLeader(DLedgerError):
    """The node asked does not lead. ``leader_id`` and ``leader_address`` name the leader, or are empty."""

    code = Code.NOT_LEADER

    @property
    def leader_id(self) -> str:
        return self.metadata.get("leader_id", "")

    @property
    def leader_address(self) -> str:
        return self.metadata.get("leader_address", "")


class Unavailable(DLedgerError):
    """Nobody can answer now: no leader, a handover, a node that stops, an endpoint out of reach."""

    code = Code.NETWORK_ERROR


class DeadlineExceeded(DLedgerError):
    """The time ran out and nothing was done: an append that raises this was surely not appended."""

    code = Code.TIMEOUT


class OutcomeUnknown(DLedgerError):
    """The append may or may not have happened. Never raised for one that surely did not."""

    code = Code.WAIT_QUORUM_ACK_TIMEOUT


class InvalidRequest(DLedgerError):
    """The request can never be served as it is."""

    code = Code.UNEXPECTED_ARGUMENT


class Unsupported(DLedgerError):
    """The server does not know this, or not in this version."""

    code = Code.UNSUPPORTED


class GroupExists(DLedgerError):
    """A group of that name exists, or is still being removed. Nothing was made."""

    code = Code.GROUP_EXISTS


class UnknownGroup(DLedgerError):
    """The cluster has no such group."""

    code = Code.UNKNOWN_GROUP


class UnknownMember(DLedgerError):
    """The group has no such member."""

    code = Code.UNKNOWN_MEMBER


class OutOfRange(DLedgerError):
    """No committed record at this index; ``first_index`` and ``commit_index`` in the metadata say where they are."""

    code = Code.INDEX_OUT_OF_RANGE


class PendingFull(DLedgerError):
    """Too much waits for a quorum already. Nothing was appended; try again after a moment."""

    code = Code.LEADER_PENDING_FULL


class ProducersFull(DLedgerError):
    """The log keeps no further producer's name. Nothing was appended."""

    code = Code.PRODUCERS_FULL


class SequenceError(DLedgerError):
    """A producer's sequence does not fit what the log knows of the producer. Nothing was appended; REPEATED_REQUEST:
    nothing more, the batch is in the log already."""

    code = Code.OUT_OF_ORDER


class WrongExpectedIndex(DLedgerError):
    """A conditional append would not have got the index it expects. Nothing was appended."""

    code = Code.WRONG_EXPECTED_INDEX

    @property
    def next_index(self) -> int:
        """The index that the next record would have got when the append was refused."""
        return int(self.metadata["next_index"])


class Compacted(DLedgerError):
    """The store has no history before a later revision any more."""

    code = Code.COMPACTED

    @property
    def compact_revision(self) -> int:
        """The first revision that can still be read; 0: the node did not say."""
        return int(self.metadata.get("compact_revision", "0"))


class FutureRevision(DLedgerError):
    """The store has not come to that revision yet."""

    code = Code.FUTURE_REVISION


class LeaseNotFound(DLedgerError):
    """The store has no such lease: it expired, or was revoked, or never was."""

    code = Code.LEASE_NOT_FOUND


class LeaseLost(DLedgerError):
    """A lease that this client keeps may have expired. What rests on it, a lock for example, may be another's now."""

    code = Code.LEASE_LOST


class NoSpace(DLedgerError):
    """The store has used up its quota. Nothing was changed; reads, deletions and compaction go on."""

    code = Code.NO_SPACE


class TransferFailed(DLedgerError):
    """The leadership stays where it is."""

    code = Code.TAKE_LEADERSHIP_FAILED


class ChangePending(DLedgerError):
    """Another change is under way. Nothing was changed; try again after a moment."""

    code = Code.CHANGE_PENDING


class ChangeRefused(DLedgerError):
    """The change would do harm, the message says which. Nothing was changed."""

    code = Code.CHANGE_REFUSED


class DiskFull(DLedgerError):
    """The leader's disk has no room. Nothing was appended; reads go on."""

    code = Code.DISK_FULL


class DiskError(DLedgerError):
    """The node's disk failed."""

    code = Code.DISK_ERROR


class CorruptLog(DLedgerError):
    """Stored bytes do not match their checksums, where a crash cannot explain it. Never served, never cut."""

    code = Code.CORRUPT_LOG


class NewerFormat(DLedgerError):
    """Stored bytes are good, and of a format that a newer program wrote. They are never cut, nor called damaged."""

    code = Code.UNSUPPORTED_VERSION

    def __init__(self, what: str, version: int, known: int, path: str = "") -> None:
        """``what`` has format ``version``; this program knows versions up to ``known``."""
        super().__init__(
            f"{path or 'what was read'} holds a {what} of format version {version}, and this program reads versions up "
            f"to {known}: start the newer program"
        )
        self._found = what, version, known
        self._path = path

    def in_file(self, path: str) -> NewerFormat:
        """This error with the file's path; the first path given counts."""
        return self if self._path else NewerFormat(*self._found, path)


class PeerRefused(DLedgerError):
    """A node refused to speak with another: cluster, identity, membership or version do not fit."""

    code = Code.UNEXPECTED_MEMBER


class ConfigError(DLedgerError):
    """The configuration or the command line cannot be used."""

    code = Code.CONFIG_ERROR


class InternalError(DLedgerError):
    """A bug. The message says where to look."""

    code = Code.INTERNAL_ERROR


class CodeInfo(NamedTuple):
    """One row of the table: the gRPC status by name, the exception, the exit code, and what it means."""

    grpc_status: str
    exception: type[DLedgerError]
    exit_code: int
    meaning: str


CODES: dict[Code, CodeInfo] = {
    Code.NOT_LEADER: CodeInfo("FAILED_PRECONDITION", NotLeader, 3, "ask the leader named in leader_address"),
    Code.NOT_HERE: CodeInfo("UNAVAILABLE", Unavailable, 3, "the node asked has no replica of this group: ask another"),
    Code.LEADER_NOT_READY: CodeInfo(
        "UNAVAILABLE", Unavailable, 3, "not committed in its term yet, or not confirmed by a quorum"
    ),
    Code.LEADER_TRANSFERRING: CodeInfo("UNAVAILABLE", Unavailable, 3, "the leadership is being handed over"),
    Code.LEADER_PENDING_FULL: CodeInfo("RESOURCE_EXHAUSTED", PendingFull, 5, "too much waits for a quorum"),
    Code.SHUTTING_DOWN: CodeInfo("UNAVAILABLE", Unavailable, 3, "the node is stopping, or the client was closed"),
    Code.NETWORK_ERROR: CodeInfo("UNAVAILABLE", Unavailable, 3, "no endpoint could be reached"),
    Code.TIMEOUT: CodeInfo("DEADLINE_EXCEEDED", DeadlineExceeded, 3, "the time ran out and nothing was done"),
    Code.WAIT_QUORUM_ACK_TIMEOUT: CodeInfo("DEADLINE_EXCEEDED", OutcomeUnknown, 4, "written, not acknowledged in time"),
    Code.TERM_CHANGED: CodeInfo(
        "ABORTED", OutcomeUnknown, 4, "perhaps written: the leader lost its term, or did not answer the node asked"
    ),
    Code.SESSION_EXPIRED: CodeInfo(
        "ABORTED", OutcomeUnknown, 4, "the state machine forgot the session, and what became of its commands"
    ),
    Code.UNEXPECTED_ARGUMENT: CodeInfo("INVALID_ARGUMENT", InvalidRequest, 5, "a field has an impossible value"),
    Code.REQUEST_WITH_EMPTY_BODYS: CodeInfo("INVALID_ARGUMENT", InvalidRequest, 5, "a batch without a record"),
    Code.RECORD_TOO_LARGE: CodeInfo("INVALID_ARGUMENT", InvalidRequest, 5, "a record over max_record_bytes"),
    Code.BATCH_TOO_LARGE: CodeInfo("INVALID_ARGUMENT", InvalidRequest, 5, "a batch over max_batch_bytes"),
    Code.CORRUPT_BATCH: CodeInfo("INVALID_ARGUMENT", InvalidRequest, 5, "count, offsets or crc do not fit the body"),
    Code.UNSUPPORTED: CodeInfo("UNIMPLEMENTED", Unsupported, 5, "not known to this server"),
    Code.UNKNOWN_GROUP: CodeInfo("NOT_FOUND", UnknownGroup, 5, "the cluster has no such group"),
    Code.GROUP_SEALED: CodeInfo("FAILED_PRECONDITION", UnknownGroup, 5, "the group is being removed"),
    Code.GROUP_EXISTS: CodeInfo("ALREADY_EXISTS", GroupExists, 5, "the cluster has a group of that name"),
    Code.UNKNOWN_MEMBER: CodeInfo("NOT_FOUND", UnknownMember, 5, "the group has no such member"),
    Code.INDEX_OUT_OF_RANGE: CodeInfo("OUT_OF_RANGE", OutOfRange, 5, "no committed record there yet"),
    Code.INDEX_LESS_THAN_LOCAL_BEGIN: CodeInfo("OUT_OF_RANGE", OutOfRange, 5, "trimmed; first_index is the first left"),
    Code.OUT_OF_ORDER: CodeInfo("ABORTED", SequenceError, 5, "a gap in a producer's sequence; resend from the oldest"),
    Code.UNKNOWN_PRODUCER: CodeInfo("FAILED_PRECONDITION", SequenceError, 5, "the log does not know the producer"),
    Code.PRODUCER_FENCED: CodeInfo("FAILED_PRECONDITION", SequenceError, 5, "the producer has a newer epoch"),
    Code.SEQUENCE_CONFLICT: CodeInfo("INVALID_ARGUMENT", SequenceError, 5, "another batch under a known sequence"),
    Code.REPEATED_REQUEST: CodeInfo("ALREADY_EXISTS", SequenceError, 5, "appended long ago; its index is forgotten"),
    Code.PRODUCERS_FULL: CodeInfo(
        "RESOURCE_EXHAUSTED", ProducersFull, 5, "the log keeps no further producer's name; see docs/gaps.md"
    ),
    Code.WRONG_EXPECTED_INDEX: CodeInfo(
        "FAILED_PRECONDITION", WrongExpectedIndex, 5, "the next record gets another index: next_index"
    ),
    Code.COMPACTED: CodeInfo("OUT_OF_RANGE", Compacted, 5, "older than the store's history; see compact_revision"),
    Code.FUTURE_REVISION: CodeInfo("OUT_OF_RANGE", FutureRevision, 5, "the store has not come to that revision"),
    Code.LEASE_NOT_FOUND: CodeInfo("NOT_FOUND", LeaseNotFound, 5, "the lease expired, was revoked, or never was"),
    Code.LEASE_EXISTS: CodeInfo("FAILED_PRECONDITION", InvalidRequest, 5, "the store has a lease of that id"),
    Code.LEASE_LOST: CodeInfo("FAILED_PRECONDITION", LeaseLost, 5, "a lease could not be kept alive in time"),
    Code.NO_SPACE: CodeInfo("RESOURCE_EXHAUSTED", NoSpace, 5, "the store's quota is used up"),
    Code.PERMISSION_DENIED: CodeInfo("PERMISSION_DENIED", InvalidRequest, 5, "the keys are the system's own"),
    Code.STORE_NOT_EMPTY: CodeInfo("FAILED_PRECONDITION", ChangeRefused, 5, "the store has keys or leases already"),
    Code.FALL_BEHIND_TOO_MUCH: CodeInfo("FAILED_PRECONDITION", TransferFailed, 5, "the target lags too far behind"),
    Code.TAKE_LEADERSHIP_FAILED: CodeInfo("ABORTED", TransferFailed, 5, "the target did not take the leadership"),
    Code.CHANGE_PENDING: CodeInfo("ABORTED", ChangePending, 5, "another change is not committed yet; try again"),
    Code.CHANGE_REFUSED: CodeInfo("FAILED_PRECONDITION", ChangeRefused, 5, "the change would do harm"),
    Code.DISK_FULL: CodeInfo("RESOURCE_EXHAUSTED", DiskFull, 5, "the leader's disk has no room"),
    Code.DISK_ERROR: CodeInfo("INTERNAL", DiskError, 5, "the leader's disk failed"),
    Code.CORRUPT_LOG: CodeInfo("DATA_LOSS", CorruptLog, 1, "stored bytes do not match their checksums"),
    Code.DIVERGED: CodeInfo("DATA_LOSS", CorruptLog, 1, "two logs hold other bytes at one (position, term)"),
    Code.INTERNAL_ERROR: CodeInfo("INTERNAL", InternalError, 5, "a bug"),
    Code.UNEXPECTED_MEMBER: CodeInfo("PERMISSION_DENIED", PeerRefused, 5, "another node has this id"),
    Code.UNKNOWN_CLUSTER: CodeInfo("PERMISSION_DENIED", PeerRefused, 5, "a node of another cluster"),
    Code.UNSUPPORTED_VERSION: CodeInfo("UNIMPLEMENTED", PeerRefused, 5, "a node, or a file, of another version"),
    Code.CONFIG_ERROR: CodeInfo("INVALID_ARGUMENT", ConfigError, 2, "the configuration cannot be used"),
}


MAX_QUOTED_CHARS = 255


def quoted(text: str) -> str:
    """What a stranger sent, as a message may repeat it: in quotes, on one line, and not at any length. A log is no
    place for the rest, and a refusal with it would not fit what gRPC lets behind an answer."""
    return repr(text if len(text) <= MAX_QUOTED_CHARS else f"{text[:MAX_QUOTED_CHARS]}…")


def error(code: Code, message: str, **metadata: str | int) -> DLedgerError:
    """The exception of ``code``, ready to raise."""
    return CODES[code].exception(message, code=code, metadata={key: str(value) for key, value in metadata.items()})
