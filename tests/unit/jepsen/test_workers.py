"""What the processes of a run write down of the answers they get: nothing that was shown goes unjudged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from dledger.client import Batch, Log
from dledger.common.batch import build_body
from dledger.common.errors import Code, DLedgerError, Unavailable, error
from dledger.kernels.checks import check_history, verdict
from jepsen.history import read_history
from jepsen.recorder import Recorder
from jepsen.records import record_of
from jepsen.verdicts import Acknowledged, Failed, Outcome, SurelyNot
from jepsen.workers import Appender, Reader
from tests.unit.kernels.histories import value

SIZE = 16


def batch_at(index: int, *values: int) -> Batch:
    return Batch(index, len(values), 1, 0, build_body([record_of(each, SIZE) for each in values]))


class ScriptedLog:
    """Each read gives the next of the scripts: its batches, then its failure; the run ends with the last."""

    def __init__(self, ended: asyncio.Event, *scripts: tuple[Sequence[Batch], DLedgerError | None]) -> None:
        self._ended = ended
        self._scripts = list(scripts)

    async def read_batches(self, start: int, **_: Any) -> AsyncIterator[Batch]:
        batches, failure = self._scripts.pop(0)
        if not self._scripts:
            self._ended.set()
        for batch in batches:
            yield batch
        if failure is not None:
            raise failure


async def told_of_reads(
    run_dir: Path, *scripts: tuple[Sequence[Batch], DLedgerError | None], node: str = ""
) -> dict[str, Any]:
    """The verdict on two acknowledged values, at 0 and 1, and what a reader makes of these reads."""
    ended = asyncio.Event()
    with Recorder(run_dir) as recorder:
        recorder.complete(recorder.invoke(1, 0, value(1, 0), 2), Acknowledged(0, 1))
        log = cast("Log", ScriptedLog(ended, *scripts))
        await Reader(100, log, recorder, SIZE, node).run(ended)
    return verdict(check_history(lambda: read_history(run_dir)))


BOTH = [batch_at(0, value(1, 0), value(1, 1))]


def log_ends_at(commit_index: int) -> DLedgerError:
    return error(Code.INDEX_OUT_OF_RANGE, "no record is committed there", first_index=0, commit_index=commit_index)


async def test_a_leader_that_says_its_log_ends_before_what_was_read_is_stale(tmp_path: Path) -> None:
    told = await told_of_reads(tmp_path, (BOTH, None), ([], log_ends_at(0)))
    assert told["stale"] == 1


async def test_a_nodes_own_prefix_may_end_before_what_another_one_showed(tmp_path: Path) -> None:
    told = await told_of_reads(tmp_path, (BOTH, None), ([], log_ends_at(0)), node="n1")
    assert told["stale"] == 0


@pytest.mark.parametrize("node", ["", "n1"])
async def test_what_a_read_showed_before_it_broke_off_counts(tmp_path: Path, node: str) -> None:
    uncommitted = batch_at(2, value(9, 9))
    told = await told_of_reads(tmp_path, ([*BOTH, uncommitted], Unavailable("gone")), node=node)
    assert told["unexpected"] == 1


async def test_a_read_that_broke_off_does_not_say_where_the_log_ends(tmp_path: Path) -> None:
    told = await told_of_reads(tmp_path, (BOTH, None), ([batch_at(0, value(1, 0))], Unavailable("gone")))
    assert (told["stale"], told["incomplete"], told["reads"]) == (0, 0, 2)


async def test_a_read_that_broke_off_as_its_node_knew_of_too_little_has_no_records_too_many(tmp_path: Path) -> None:
    told = await told_of_reads(tmp_path, (BOTH, log_ends_at(0)))
    assert (told["stale"], told["overfull"], told["reads"]) == (0, 0, 1)


async def test_a_read_that_showed_nothing_before_it_broke_off_is_none(tmp_path: Path) -> None:
    assert (await told_of_reads(tmp_path, ([], Unavailable("gone"))))["reads"] == 0


class RefusingClient:
    """Refuses without ever waiting, as the SDK does what is too large."""

    async def append(self, records: Sequence[bytes]) -> Outcome:
        return Failed(SurelyNot.RECORD_TOO_LARGE)

    async def close(self) -> None: ...


async def test_an_appender_that_is_refused_at_once_lets_the_run_end(tmp_path: Path) -> None:
    ended = asyncio.Event()
    with Recorder(tmp_path) as recorder:
        appender = Appender(1, RefusingClient(), recorder, batch=1, record_bytes=SIZE, rate_per_s=0)
        running = asyncio.create_task(appender.run(ended))
        asyncio.get_running_loop().call_later(0.01, ended.set)
        await asyncio.wait_for(running, 10)
    assert recorder.failed
