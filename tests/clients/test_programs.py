"""The programs of docs/clients, as they are: all append to one cluster at once while its leader is killed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
import pytest_asyncio

from dledger.v1 import log_pb2
from tests.clients.programs import PROGRAMS, Program, build
from tests.integration.nodes import CALL_TIMEOUT_S, Nodes, eventually, everything, running

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

COUNT = 300
RUN_WITHIN_S = 120.0


class Outcome(NamedTuple):
    printed: dict[str, list[str] | BaseException]
    """By program."""
    held: list[tuple[int, str]]
    """What the log has in the end."""


async def kill_a_leader(nodes: Nodes, at_index: int) -> None:
    """Once the log has so many records."""

    async def reached() -> bool:
        return any(status.commit_index >= at_index for status in await nodes.statuses())

    await eventually(reached, "the programs append", RUN_WITHIN_S)
    leader = await nodes.leader()
    await nodes.cluster.kill(leader)
    await nodes.restart(leader)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outcome(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Outcome]:
    usable = [program for program in PROGRAMS if not program.missing]
    directory = tmp_path_factory.mktemp("programs")
    built = [await asyncio.to_thread(build, program, directory) for program in usable]
    async with running(tmp_path_factory.mktemp("cluster")) as nodes:
        async with asyncio.timeout(RUN_WITHIN_S):
            *printed, _ = await asyncio.gather(
                *(each.run(nodes.cluster.endpoints, COUNT) for each in built),
                kill_a_leader(nodes, COUNT),
                return_exceptions=True,
            )
        request = log_pb2.ReadRecordsRequest()
        answers = await everything(nodes[nodes.ids[0]].log.ReadRecords(request, timeout=CALL_TIMEOUT_S))
        held = [(each.entry.index, each.entry.value.decode()) for each in answers]
        yield Outcome({program.name: said for program, said in zip(usable, printed, strict=True)}, held)  # type: ignore[misc]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.name)
async def test_each_record_is_appended_once_and_read_back_in_order(program: Program, outcome: Outcome) -> None:
    if program.missing:
        pytest.skip(f"needs {', '.join(program.missing)}")
    printed = outcome.printed[program.name]
    if isinstance(printed, BaseException):
        raise printed
    records = [f"{program.name} {number}" for number in range(COUNT)]
    assert [line.partition(" ")[2] for line in printed] == records
    held = {value: index for index, value in outcome.held}
    assert printed == [f"{held[record]} {record}" for record in records]
    times = Counter(value for _, value in outcome.held)
    assert {times[record] for record in records} == {1}
