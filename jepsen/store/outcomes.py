"""What came of a call, as far as its client can swear to it. A false "refused" cannot be written down.

``Refused`` is made of a call that was never sent, or of a refusal of the store's own: its words are a closed list, and
each says that the store is as it was before. Every other failure, known or new, is ``Unknown``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from dledger.rpc.client.rpc_failure import RpcFailure
from dledger.store.refusals import StoreCode

_REFUSALS = {(code.status, code.text) for code in StoreCode}
NEVER_SENT = "never sent"


class Answered(NamedTuple):
    message: Any


class Refused(NamedTuple):
    """It did not happen, and never will."""

    why: str


class Unknown(NamedTuple):
    """It may have happened, or happen yet."""

    why: str


Outcome = Answered | Refused | Unknown


def outcome_of(failure: RpcFailure) -> Refused | Unknown:
    if not failure.was_sent:
        return Refused(NEVER_SENT)
    if not failure.is_local and (failure.status.name, failure.details) in _REFUSALS:
        return Refused(failure.details)
    return Unknown(str(failure))
