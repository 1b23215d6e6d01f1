"""Looks up the addresses of names, however long a nameserver takes.

The event loop's own look-ups share four threads, and a look-up that its caller has given up goes on in its thread. A
few names without an answer would then keep all others waiting. So each name has a thread of its own, and at most one
look-up under way. A caller that stops waiting does not end the look-up: the next caller gets its answer.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from ipaddress import ip_address
from threading import Thread

LookUp = Callable[[str], Sequence[str]]
"""The addresses of a name. Blocks. Raises OSError."""


def look_up(host: str) -> Sequence[str]:
    """By the system's own resolver: /etc/hosts, the nameservers."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Resolver:
    """Of one event loop. Keeps the last answer for each name, to be used while a nameserver is silent."""

    def __init__(self, look_up: LookUp = look_up) -> None:
        self._look_up = look_up
        self._under_way: dict[str, asyncio.Future[Sequence[str]]] = {}
        self._known: dict[str, Sequence[str]] = {}

    def knows(self, host: str) -> bool:
        """Whether an earlier answer for ``host`` is kept."""
        return host in self._known

    async def resolve(self, host: str, patience_s: float) -> Sequence[str]:
        """The addresses of ``host``. If the answer takes longer than ``patience_s``, the last known answer is given.
        Raises TimeoutError if there is none. Raises OSError for a name that has no address."""
        if _is_address(host):
            return (host,)
        answer = self._under_way.get(host) or self._begin(host)
        try:
            async with asyncio.timeout(patience_s):
                return await asyncio.shield(answer)
        except TimeoutError:
            known = self._known.get(host)
            if known is None:
                raise
            return known

    def _begin(self, host: str) -> asyncio.Future[Sequence[str]]:
        loop = asyncio.get_running_loop()
        answer = self._under_way[host] = loop.create_future()

        def settle(addresses: Sequence[str], failure: OSError | None) -> None:
            del self._under_way[host]
            if failure is not None:
                answer.set_exception(failure)
                answer.exception()  # perhaps nobody waits for it any more
                return
            self._known[host] = addresses
            answer.set_result(addresses)

        def work() -> None:
            addresses: Sequence[str] = ()
            failure: OSError | None = None
            try:
                addresses = self._look_up(host)
            except OSError as reason:
                failure = reason
            with suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(settle, addresses, failure)

        Thread(target=work, name=f"look-up-{host}", daemon=True).start()
        return answer


def _is_address(host: str) -> bool:
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
