"""The process beside the control node runs what it is asked to, several things at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from jepsen.agent import Agent
from jepsen.shell import CommandFailedError


@pytest.fixture
async def agent() -> AsyncIterator[Agent]:
    started = await Agent.start()
    yield started
    await started.close()


async def test_what_a_command_prints_comes_back_to_who_asked(agent: Agent) -> None:
    one, other = await asyncio.gather(agent.run("echo", "one\ntwo"), agent.run("echo", "三"))
    assert (one, other) == ("one\ntwo\n", "三\n")


async def test_a_command_that_fails_says_what_and_why(agent: Agent) -> None:
    with pytest.raises(CommandFailedError, match=r"sh -c .* ended with 3: no$") as failure:
        await agent.run("sh", "-c", "echo no >&2; exit 3")
    assert failure.value.code == 3


async def test_a_command_that_is_not_there_is_a_failure_and_the_next_one_runs(agent: Agent) -> None:
    with pytest.raises(CommandFailedError, match="no-such-command"):
        await agent.run("no-such-command")
    assert await agent.run("echo", "on") == "on\n"
