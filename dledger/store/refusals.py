"""What the store refuses, with the status and the text that etcd's clients know it by."""

from __future__ import annotations

from enum import Enum

from dledger.statemachine.api import Refused


class StoreCode(Enum):
    """Each is (the name of a gRPC status, the text). Clients compare the text: it must be etcd's to the letter."""

    EMPTY_KEY = ("INVALID_ARGUMENT", "etcdserver: key is not provided")
    KEY_NOT_FOUND = ("INVALID_ARGUMENT", "etcdserver: key not found")
    VALUE_PROVIDED = ("INVALID_ARGUMENT", "etcdserver: value is provided")
    LEASE_PROVIDED = ("INVALID_ARGUMENT", "etcdserver: lease is provided")
    TOO_MANY_OPS = ("INVALID_ARGUMENT", "etcdserver: too many operations in txn request")
    DUPLICATE_KEY = ("INVALID_ARGUMENT", "etcdserver: duplicate key given in txn request")
    INVALID_SORT_OPTION = ("INVALID_ARGUMENT", "etcdserver: invalid sort option")
    REQUEST_TOO_LARGE = ("INVALID_ARGUMENT", "etcdserver: request is too large")
    COMPACTED = ("OUT_OF_RANGE", "etcdserver: mvcc: required revision has been compacted")
    FUTURE_REVISION = ("OUT_OF_RANGE", "etcdserver: mvcc: required revision is a future revision")
    NO_SPACE = ("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded")
    LEASE_NOT_FOUND = ("NOT_FOUND", "etcdserver: requested lease not found")
    LEASE_EXISTS = ("FAILED_PRECONDITION", "etcdserver: lease already exists")
    LEASE_TTL_TOO_LARGE = ("OUT_OF_RANGE", "etcdserver: too large lease TTL")
    PERMISSION_DENIED = ("PERMISSION_DENIED", "etcdserver: permission denied")
    CORRUPT = ("DATA_LOSS", "etcdserver: corrupt cluster")
    NOT_EMPTY = ("FAILED_PRECONDITION", "dledger: the store has keys or leases: choose an empty one")

    @property
    def status(self) -> str:
        """The name of the gRPC status."""
        return self.value[0]

    @property
    def text(self) -> str:
        return self.value[1]


class StoreRefused(Refused):
    """The store does not carry it out, and is as it was before."""

    def __init__(self, code: StoreCode) -> None:
        super().__init__(code.text)
        self.code = code
