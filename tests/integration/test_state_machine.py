"""A replicated counter on a real cluster: what docs/statemachine.md shows."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

import dledger
from tests.integration.nodes import Nodes, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

DOCS = Path(__file__).parents[2] / "docs" / "statemachine.md"


def counter() -> Any:
    """The class that the page shows, as it stands there."""
    [shown] = re.findall(r"```python\n(class Counter.*?)```", DOCS.read_text(), re.DOTALL)
    names: dict[str, Any] = {"dledger": dledger}
    exec(shown, names)
    return names["Counter"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nodes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Nodes]:
    async with running(tmp_path_factory.mktemp("machine")) as started:
        yield started


async def test_the_counter_is_short() -> None:
    [shown] = re.findall(r"```python\n(class Counter.*?)```", DOCS.read_text(), re.DOTALL)
    assert len(shown.splitlines()) <= 20


async def test_two_programs_count_on_one_log_through_the_loss_of_its_leader(nodes: Nodes) -> None:
    make, endpoints = counter(), nodes.cluster.endpoints
    async with (
        dledger.connect(endpoints) as here,
        dledger.connect(endpoints) as there,
        dledger.replicate(here, make) as one,
        dledger.replicate(there, make) as other,
    ):
        await asyncio.gather(*(each.submit(b"1") for each in (one, other) for _ in range(20)))
        await nodes.cluster.kill(await nodes.leader())
        outcomes = await asyncio.gather(*(one.submit(b"1") for _ in range(20)), return_exceptions=True)
        assert not [each for each in outcomes if isinstance(each, BaseException)]
        await asyncio.gather(one.barrier(), other.barrier())
        assert one.machine.value == other.machine.value == 60


async def test_a_later_start_is_restored_from_the_checkpoint(nodes: Nodes) -> None:
    make, endpoints = counter(), nodes.cluster.endpoints
    async with dledger.connect(endpoints) as log, dledger.replicate(log, make) as one:
        await one.barrier()
        await one.checkpoint()
        await one.submit(b"1")
        value = one.machine.value
    async with dledger.connect(endpoints) as log, dledger.replicate(log, make) as again:
        await again.barrier()
        assert again.machine.value == value
