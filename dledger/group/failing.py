"""The error with which a group is ended after an unexpected failure."""

from __future__ import annotations

import logging

from dledger.common.errors import Code, DLedgerError, error

logger = logging.getLogger(__name__)


def as_refusal(failure: BaseException, group: str) -> DLedgerError:
    """``failure`` itself where it has a code; a bug is told in full, and is INTERNAL_ERROR."""
    if isinstance(failure, DLedgerError):
        return failure
    logger.critical("an invariant or an assumption broke", exc_info=failure, extra={"group": group})
    return error(Code.INTERNAL_ERROR, f"{type(failure).__name__}: {failure}")
