"""A line in the log of the node that carried out an operator's request: its kind, its group, and the caller's
address."""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)


def tell(event: str, group: str, caller: str, *, dry_run: bool, **fields: object) -> None:
    """``caller`` is the operator's address. Says nothing of a dry run, for it changed nothing."""
    if not dry_run:
        logger.info(event, extra={"group": group, **fields, "caller": caller})
