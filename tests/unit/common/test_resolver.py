"""Names are looked up beside the event loop, one look-up a name, and no answer is thrown away."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Sequence

import pytest

from dledger.common.resolver import Resolver, look_up


class Nameserver:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.addresses: dict[str, Sequence[str]] = {}
        self.asked: Counter[str] = Counter()

    def look_up(self, host: str) -> Sequence[str]:
        self.asked[host] += 1
        if host not in self.addresses:
            assert self.answers.wait(10)
        if not self.addresses.get(host):
            raise OSError(-2, "Name or service not known")
        return self.addresses[host]


async def test_an_address_is_not_looked_up() -> None:
    resolver = Resolver(Nameserver().look_up)
    for address in ("127.0.0.1", "::1", "fe80::1%lo"):
        assert await resolver.resolve(address, 1) == (address,)


async def test_an_answer_that_came_late_is_there_for_the_next_who_asks() -> None:
    server = Nameserver()
    resolver = Resolver(server.look_up)
    with pytest.raises(TimeoutError):
        await resolver.resolve("n1.test", 0.01)
    waiting = asyncio.ensure_future(resolver.resolve("n1.test", 5))
    await asyncio.sleep(0)
    server.addresses["n1.test"] = ["127.0.0.1"]
    server.answers.set()
    assert await waiting == ["127.0.0.1"]
    assert server.asked == {"n1.test": 1}


async def test_a_name_that_nobody_answers_for_keeps_no_other_waiting() -> None:
    server = Nameserver()
    resolver = Resolver(server.look_up)
    silent = [asyncio.ensure_future(resolver.resolve(f"dead{number}.test", 5)) for number in range(40)]
    await asyncio.sleep(0)
    server.addresses["n1.test"] = ["127.0.0.1"]
    assert await resolver.resolve("n1.test", 5) == ["127.0.0.1"]
    server.answers.set()
    for each in silent:
        with pytest.raises(OSError, match="not known"):
            await each


async def test_the_last_answer_serves_while_the_nameserver_is_silent() -> None:
    server = Nameserver()
    resolver = Resolver(server.look_up)
    server.addresses["n1.test"] = ["127.0.0.1"]
    await resolver.resolve("n1.test", 5)
    del server.addresses["n1.test"]
    assert resolver.knows("n1.test")
    assert await resolver.resolve("n1.test", 0.01) == ["127.0.0.1"]
    server.answers.set()


def test_the_system_knows_this_machine() -> None:
    assert "127.0.0.1" in look_up("127.0.0.1")
