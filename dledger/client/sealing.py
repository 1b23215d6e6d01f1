"""Sealing a group from another node: the first step of its removal."""

from __future__ import annotations

from collections.abc import Sequence

from dledger.client.client_options import ClientOptions
from dledger.client.log import Log


async def seal_group(endpoints: Sequence[str], group: str) -> None:
    """Returns when the group's leader has refused every append for good, and that is committed. Raises what a client's
    calls raise."""
    async with Log(endpoints, ClientOptions(group=group)) as log:
        await log.admin.seal()
