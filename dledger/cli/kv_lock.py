"""``dledger kv lock`` and ``elect``: a command that runs on one machine at a time, and one leader of many."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

import click

from dledger.cli.interrupts import cancelled_by_signals
from dledger.cli.kv_format import typed
from dledger.cli.options import Seconds, Target, cluster_options, option, output_option
from dledger.cli.output import print_fields, print_json
from dledger.cli.runtime import run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from dledger.client.store import Lock

TTL_S = 10
MAX_TTL_S = 9_000_000_000
END_S = 5.0
"""How long a command may take to end by itself when it must."""
KEY_VARIABLE = "DLEDGER_LOCK_KEY"
TOKEN_VARIABLE = "DLEDGER_LOCK_TOKEN"  # noqa: S105  # not a secret
BY_SIGNAL = 128

ttl_option = option(
    "--ttl",
    "ttl_s",
    env="TTL",
    type=click.IntRange(2, MAX_TTL_S),
    default=TTL_S,
    help="Seconds after which it is free when this machine is cut off.",
)
wait_option = option("--wait", env="WAIT", type=Seconds(0.001), default=None, help="Seconds to wait for it, at most.")


@click.command(short_help="Runs a command under a lock.", context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("command", metavar="-- COMMAND…", nargs=-1, required=True, type=click.UNPROCESSED)
@ttl_option
@wait_option
@cluster_options
def lock(*, target: Target, name: str, command: tuple[str, ...], ttl_s: int, wait: float | None) -> int:
    """Waits for a lock, runs a command, and ends with the command's exit code.

    \b
    dledger kv lock nightly -- ./backup.sh

    The command finds the lock's key in DLEDGER_LOCK_KEY, and in DLEDGER_LOCK_TOKEN its fencing token, which is higher
    than that of every holder before. If the lock is lost while the command runs, the command is ended, and the exit
    code is 5. What must never meet another holder's work compares the token: see docs/store.md.
    """
    return run(_lock(target, typed(name), command, ttl_s, wait))


async def _lock(target: Target, name: bytes, command: tuple[str, ...], ttl_s: int, wait_s: float | None) -> int:
    with cancelled_by_signals(lambda: None):
        async with (
            target.connect_cluster() as cluster,
            cluster.store().lock(name, ttl_s, wait_ms=_ms(wait_s)) as held,
        ):
            return await _run_under(held, command)


async def _run_under(held: Lock, command: tuple[str, ...]) -> int:
    named = {KEY_VARIABLE: os.fsdecode(held.key), TOKEN_VARIABLE: str(held.token)}
    async with _running(command, os.environ | named) as process:
        code = await held.lease.while_alive(process.wait())
    return code if code >= 0 else BY_SIGNAL - code


@asynccontextmanager
async def _running(
    command: tuple[str, ...], environment: Mapping[str, str]
) -> AsyncIterator[asyncio.subprocess.Process]:
    """The command, which has ended when the block has."""
    process = await asyncio.create_subprocess_exec(*command, env=environment)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(END_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


@click.command(short_help="Stands for an election, and leads until Ctrl-C.")
@click.argument("name")
@click.argument("value")
@ttl_option
@wait_option
@output_option("text", "json")
@cluster_options
def elect(*, target: Target, name: str, value: str, ttl_s: int, wait: float | None, output: str) -> None:
    """Waits until it is elected under NAME, tells so, and leads until Ctrl-C. Everybody can read VALUE meanwhile.

    The token is higher than that of every leader before. Ends with 5 when the leadership is lost.
    """
    run(_elect(target, Candidate(typed(name), typed(value), ttl_s, _ms(wait)), output))


class Candidate(NamedTuple):
    name: bytes
    value: bytes
    ttl_s: int
    wait_ms: float | None


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds


async def _elect(target: Target, candidate: Candidate, output: str) -> None:
    with cancelled_by_signals(lambda: None):
        async with target.connect_cluster() as cluster:
            election = cluster.store().election(candidate.name, candidate.ttl_s)
            async with election.campaign(candidate.value, wait_ms=candidate.wait_ms) as leadership:
                fields = {"key": leadership.key.decode(errors="backslashreplace"), "token": leadership.token}
                if output == "json":
                    print_json(fields)
                else:
                    print_fields("elected", fields)
                sys.stdout.flush()
                await leadership.lease.lost()
