"""Sockets behave the same on the standard library's loop, which embedders may use, and on uvloop, as in ``serve``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import uvloop

from tests.unit.transport.nodes import Nodes
from tests.unit.transport.recorder import LogRecorder


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def log() -> AsyncIterator[LogRecorder]:
    with LogRecorder("dledger.transport") as recorder:
        yield recorder


@pytest.fixture
async def nodes() -> AsyncIterator[Nodes]:
    made = Nodes()
    yield made
    await made.close()
