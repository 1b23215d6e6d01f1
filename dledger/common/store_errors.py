"""etcd's words for what a store refuses, and our codes for them. Its clients know a refusal by the text alone."""

from __future__ import annotations

from dledger.common.errors import Code

_MVCC = "etcdserver: mvcc: "
COMPACTED_TEXT = _MVCC + "required revision has been compacted"
CODES_BY_TEXT: dict[str, Code] = {
    "etcdserver: key is not provided": Code.UNEXPECTED_ARGUMENT,
    "etcdserver: key not found": Code.UNEXPECTED_ARGUMENT,
    "etcdserver: value is provided": Code.UNEXPECTED_ARGUMENT,
    "etcdserver: lease is provided": Code.UNEXPECTED_ARGUMENT,
    "etcdserver: too many operations in txn request": Code.UNEXPECTED_ARGUMENT,
    "etcdserver: duplicate key given in txn request": Code.UNEXPECTED_ARGUMENT,
    "etcdserver: invalid sort option": Code.UNEXPECTED_ARGUMENT,
    "etcdserver: request is too large": Code.UNEXPECTED_ARGUMENT,
    "etcdserver: too large lease TTL": Code.UNEXPECTED_ARGUMENT,
    COMPACTED_TEXT: Code.COMPACTED,
    _MVCC + "required revision is a future revision": Code.FUTURE_REVISION,
    _MVCC + "database space exceeded": Code.NO_SPACE,
    "etcdserver: requested lease not found": Code.LEASE_NOT_FOUND,
    "etcdserver: lease already exists": Code.LEASE_EXISTS,
    "etcdserver: permission denied": Code.PERMISSION_DENIED,
    "etcdserver: corrupt cluster": Code.CORRUPT_LOG,
    "dledger: the store has keys or leases: choose an empty one": Code.STORE_NOT_EMPTY,
}

MESSAGES: dict[Code, str] = {
    Code.COMPACTED: "the store has no history before a later revision: read at a newer one, or at the present",
    Code.FUTURE_REVISION: "the store has not come to that revision: read at an earlier one, or at the present",
    Code.NO_SPACE: "the store has used up its quota: delete keys, compact, then take the alarm NOSPACE back",
    Code.LEASE_NOT_FOUND: "the store has no such lease: it expired or was revoked; grant another",
    Code.LEASE_EXISTS: "the store has a lease of that id: choose another id",
    Code.PERMISSION_DENIED: "the request would write keys under /dledger/, which are the system's own: leave these out",
    Code.STORE_NOT_EMPTY: "the store has keys or leases: restore into an empty one",
    Code.CORRUPT_LOG: "a member has raised the alarm CORRUPT: its state differs from the others'",
}
"""What our own clients are told instead, one clear sentence. Other refusals of the store keep etcd's text."""


def sentence_of(code: Code, text: str) -> str:
    """For a refusal with this text of etcd's."""
    return MESSAGES.get(code) or f"the store refuses the request: {text.removeprefix('etcdserver: ')}"
