"""The name that a node listens on: its own, which a nameserver may not have yet."""

from __future__ import annotations

import asyncio
import socket

from dledger.common.config import join_address
from dledger.common.errors import Code, DLedgerError, error


async def check_own_name(host: str, port: int) -> None:
    """Raises CONFIG_ERROR if ``host`` has no address."""
    try:
        await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as reason:
        raise own_name_unknown(f"for nodes on {join_address(host, port)}", reason) from reason


def own_name_unknown(where: str, reason: socket.gaierror) -> DLedgerError:
    """No port is in use then, and another one would not help."""
    return error(
        Code.CONFIG_ERROR,
        f"cannot listen {where}: the name cannot be looked up ({reason.strerror}): give --listen an address of this "
        "machine",
    )
