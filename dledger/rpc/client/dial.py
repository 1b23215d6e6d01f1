"""Connecting to one of several addresses: the next one is tried as well when one takes long (RFC 8305)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from ssl import SSLContext
from typing import Any, TypeVar

NEXT_AFTER_S = 0.25

Protocol = TypeVar("Protocol", bound=asyncio.BaseProtocol)


async def dial(
    addresses: Sequence[str],
    port: int,
    factory: Callable[[], Protocol],
    *,
    ssl: SSLContext | None = None,
    server_name: str | None = None,
) -> Protocol:
    """The protocol of the connection that came about first; all others are closed. Raises the OSError of the last
    address when none did."""
    loop = asyncio.get_running_loop()
    options: dict[str, Any] = {"ssl": ssl, "server_hostname": server_name if ssl is not None else None}
    left = list(addresses)
    made: dict[asyncio.Task[Any], list[Protocol]] = {}
    attempts: set[asyncio.Task[tuple[asyncio.BaseTransport, Protocol]]] = set()
    failure: OSError | None = None
    try:
        while left or attempts:
            if left:
                address = left.pop(0)
                protocols: list[Protocol] = []
                making: Coroutine[Any, Any, tuple[asyncio.BaseTransport, Protocol]] = loop.create_connection(
                    partial(_make, factory, protocols), address, port, **options
                )
                attempt = loop.create_task(making)
                made[attempt] = protocols
                attempts.add(attempt)
            done, attempts = await asyncio.wait(
                attempts, timeout=NEXT_AFTER_S if left else None, return_when=asyncio.FIRST_COMPLETED
            )
            for attempt in done:
                reason = attempt.exception()
                if reason is None:
                    return attempt.result()[1]
                if not isinstance(reason, OSError):
                    raise reason
                failure = reason
    finally:
        for attempt in attempts:
            if attempt.cancel():
                _tell_lost(made[attempt])  # before anything of it runs on
            attempt.add_done_callback(partial(_close, made[attempt]))
    raise failure or OSError("there is no address to connect to")


def _make(factory: Callable[[], Protocol], protocols: list[Protocol]) -> Protocol:
    protocols.append(factory())
    return protocols[-1]


def _close(protocols: Sequence[asyncio.BaseProtocol], attempt: asyncio.Task[Any]) -> None:
    """Of an attempt that came too late, or was given up. uvloop tells no protocol of the end of a connection that was
    cancelled while it was made. asyncio's own loop does: then it is the second time."""
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result()[0].close()
        return
    _tell_lost(protocols)


def _tell_lost(protocols: Sequence[asyncio.BaseProtocol]) -> None:
    for protocol in protocols:
        protocol.connection_lost(None)
