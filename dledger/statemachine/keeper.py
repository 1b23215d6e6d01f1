"""Keeper: what a node does for the state machine on one of its groups, beside applying the log.

Every node tells the group how far its state machine is, and its digests (``MachineLink``). The leader, by that:

* confirms checkpoints: a record says which one a majority of the voters agrees with. The group's retention trims up to
  the last one (group/leader/retention.py), under any leader;
* gives up its leadership, and builds its state anew, if a majority contradicts it;
* begins a checkpoint when the log behind the last one has grown;
* opens the way for a later version of commands once all voters know it;
* ends sessions that nobody uses.

The first leader says in the group's settings that the log is a state machine's, before anything is appended to it. Each
step looks at the present state and does the missing part. So a new leader goes on where the last one was lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dledger.common.config import MIB
from dledger.common.errors import Code, DLedgerError
from dledger.common.pace import Pace
from dledger.common.types import NodeId
from dledger.group.machine_link import MachineStatus
from dledger.group.replica import Replica
from dledger.raft.messages import MachineReport
from dledger.statemachine.confirmation import Judgement, judge
from dledger.statemachine.records import Confirmed, EndSession, MachineRecord, Version, encode
from dledger.statemachine.runner import Runner

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KeeperOptions:
    checkpoint_after_bytes: int = 64 * MIB
    """A checkpoint begins when the commands behind the last one take more than this, and than the state. So the log
    stays below about three times the state."""
    checkpoint_bytes_per_s: float = 20e6
    """Its parts are written no faster, so that commands go on beside it; after an incomplete one at full speed."""
    look_interval_s: float = 0.1
    session_idle_s: float = 3_600.0
    """A session that was not used for so long, by the leader's clock, ends. A new leader gives all that time again."""


class Keeper:
    """Of one group on one node. ``run`` beside ``Runner.run``."""

    def __init__(
        self, runner: Runner[Any], name: str, replica: Callable[[], Replica], options: KeeperOptions | None = None
    ) -> None:
        """``name``: of the state machine, for the group's settings. ``replica`` gives the group's present replica, and
        raises an error that passes while there is none."""
        self._runner = runner
        self._name = name
        self._replica = replica
        self._options = options or KeeperOptions()
        self._writing: asyncio.Task[None] | None = None
        self._idle_since_s: dict[int, tuple[int, float]] = {}
        """By session: the highest request known of it, and since when that has been so."""
        self._term = 0
        """The leader's that these times are of."""

    # Every node --------------------------------------------------------------------------------------------------

    def status(self) -> MachineStatus:
        runner = self._runner
        next_index, own = runner.next_index, runner.checkpoints.own
        is_there = next_index is not None
        return MachineStatus(
            next_index=next_index or 0,
            version=runner.machine.version if is_there else 0,
            confirmed_id=runner.checkpoints.confirmed_id if is_there else -1,
            checkpoint_id=own.id if own is not None else 0,
            digest=own.digest if own is not None else b"",
            is_rebuilding=runner.is_rebuilding,
        )

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            while True:
                try:
                    await self._look()
                except DLedgerError as failure:
                    logger.debug("the state machine cannot be seen to now", extra={"why": failure})
                await asyncio.sleep(self._options.look_interval_s)
        finally:
            if self._writing is not None:
                self._writing.cancel()

    async def _look(self) -> None:
        """Raises the error of the step that fails; done again it goes on from there."""
        replica = self._replica()
        link = replica.machine
        link.attach(self.status)
        if not link.has_caught_up:
            self._idle_since_s.clear()
            return
        if not link.has_machine:
            await replica.settings.set_machine(self._name)
        await self._confirm(replica)
        await self._agree_on_version(replica)
        await self._end_idle_sessions(replica)
        self._begin_checkpoint(replica)

    # The leader --------------------------------------------------------------------------------------------------

    async def _append(self, replica: Replica, record: MachineRecord) -> int:
        replica.machine.check_serving()
        return (await replica.appender.append_records([encode(record)])).base_index

    def _reports(self, replica: Replica) -> dict[NodeId, MachineReport]:
        leadership = replica.core.leadership
        return leadership.machine_reports() if leadership is not None else {}

    async def _confirm(self, replica: Replica) -> None:
        """Judges the last checkpoint that ended, if this node has a word on it."""
        checkpoints, leadership = self._runner.checkpoints, replica.core.leadership
        own = checkpoints.own
        if own is None or leadership is None or own.id <= checkpoints.confirmed_id:
            return
        reports = {
            peer: report.digest
            for peer, report in self._reports(replica).items()
            if report.digest and report.checkpoint_id == own.id
        }
        match judge(own.digest, own.said, reports, replica.core.membership.voters, replica.core.node_id):
            case Judgement.CONFIRMED:
                index = await self._append(replica, Confirmed(own.id, own.digest))
                await self._runner.wait_applied(index)
            case Judgement.CONTRADICTED:
                logger.error(
                    "a majority has another state than this leader",
                    extra={"group": replica.group, "checkpoint": own.id},
                )
                self._give_up(replica)
                self._runner.contradicted(own.id)
                replica.guard(replica.machine.check)
            case Judgement.OPEN:
                pass

    def _give_up(self, replica: Replica) -> None:
        """Nothing more is written by this leader's state."""
        replica.machine.is_checkpointing = False
        if self._writing is not None:
            self._writing.cancel()

    async def _agree_on_version(self, replica: Replica) -> None:
        leadership, node_id = replica.core.leadership, replica.core.node_id
        if leadership is None or self._runner.machine.version <= self._runner.agreed_version:
            return
        reports = self._reports(replica)
        if replica.core.membership.voters - {node_id} - reports.keys():
            return  # somebody has not said yet what it knows
        known = min([self._runner.machine.version, *(report.version for report in reports.values())])
        if known > self._runner.agreed_version:
            logger.info("all voters know commands of a later version", extra={"group": replica.group, "to": known})
            await self._append(replica, Version(known))

    async def _end_idle_sessions(self, replica: Replica) -> None:
        if replica.term != self._term:
            self._idle_since_s.clear()
            self._term = replica.term
        now_s = replica.now_s()
        before, self._idle_since_s = self._idle_since_s, {}
        for session, used in self._runner.sessions_used().items():
            known = before.get(session)
            since_s = known[1] if known is not None and known[0] == used else now_s
            self._idle_since_s[session] = used, since_s
            if now_s > since_s + self._options.session_idle_s:
                logger.info("a session ends", extra={"group": replica.group, "session": session})
                await self._append(replica, EndSession(session, replica.term))

    # Checkpoints -------------------------------------------------------------------------------------------------

    def _begin_checkpoint(self, replica: Replica) -> None:
        checkpoints = self._runner.checkpoints
        least_bytes = max(self._options.checkpoint_after_bytes, checkpoints.state_bytes)
        leadership = replica.core.leadership
        is_handing_over = leadership is None or leadership.transfer is not None
        if self._writing is None and not is_handing_over and checkpoints.behind_bytes > least_bytes:
            name = f"checkpoint-{replica.group}"
            self._writing = asyncio.get_running_loop().create_task(self._write(replica), name=name)
            self._writing.add_done_callback(self._written)

    def _written(self, task: asyncio.Task[None]) -> None:
        self._writing = None
        if not task.cancelled() and (failure := task.exception()) is not None:
            asyncio.get_running_loop().call_exception_handler({"message": "a checkpoint failed", "exception": failure})

    async def _write(self, replica: Replica) -> None:
        link, fields = replica.machine, {"group": replica.group}
        pace = None if self._runner.checkpoints.is_one_left else self._pace(replica)
        link.is_checkpointing = True
        logger.info("a checkpoint begins", extra=fields | {"is_paced": pace is not None})
        try:
            replica.log.roll()
            began = await self._runner.checkpoint(pace)
        except DLedgerError as failure:
            if failure.code is Code.CORRUPT_LOG:
                logger.error("the state is damaged", extra=fields | {"why": failure})  # noqa: TRY400  # no trace is needed
                self._runner.rebuild()
                replica.guard(link.check)
            else:
                logger.info("a checkpoint was not completed", extra=fields | {"why": failure})
        else:
            logger.info("a checkpoint is complete", extra=fields | {"checkpoint": began})
        finally:
            link.is_checkpointing = False

    def _pace(self, replica: Replica) -> Callable[[int], Any]:
        pace = Pace(self._options.checkpoint_bytes_per_s)

        async def wait(size_bytes: int) -> None:
            await asyncio.sleep(pace.pause_s(size_bytes, replica.now_s()))

        return wait
