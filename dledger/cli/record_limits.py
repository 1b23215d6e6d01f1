"""How large a record may be: the servers' configuration says so, and a client is not told it before they refuse one."""

from __future__ import annotations

from dledger.common.config import MAX_IN_ONE_MESSAGE_BYTES, Limits
from dledger.common.errors import Code, DLedgerError, error

OFFSETS_BYTES = 8
"""Of a batch of one record, beside it."""
LARGEST_RECORD_BYTES = MAX_IN_ONE_MESSAGE_BYTES - OFFSETS_BYTES
"""No server can be told to take a larger one."""
_WHOSE = {
    Code.RECORD_TOO_LARGE: "max_record_bytes of the servers: raise it",
    Code.BATCH_TOO_LARGE: "max_batch_bytes of the servers: raise it, and max_record_bytes,",
}


def limits_for(record_bytes: int) -> Limits:
    """A client's limits for records of that size: the servers decide whether they take them."""
    usual = Limits()
    return Limits(
        max_record_bytes=max(usual.max_record_bytes, record_bytes),
        max_batch_bytes=max(usual.max_batch_bytes, record_bytes + OFFSETS_BYTES),
    )


def with_whose_limit(refusal: DLedgerError) -> DLedgerError:
    """For something too large: the refusal with the owner of the limit, and with advice. Any other refusal as it is."""
    whose = _WHOSE.get(refusal.code)
    if whose is None:
        return refusal
    size_bytes, limit_bytes = (refusal.metadata.get(key) for key in ("size_bytes", "max_record_bytes"))
    if size_bytes is not None and limit_bytes is not None:  # the client's own: no server was asked
        text = f"a record has {size_bytes} bytes, and no server takes more than {limit_bytes}: append smaller records"
    else:
        text = f"{refusal} ({whose} in every node's --config, or append smaller records)"
    return error(refusal.code, text)
