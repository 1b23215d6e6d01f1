"""Opening a group's files: a ``Replica`` where its log can be opened, else a ``RecoveringReplica``, until it can."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

from dledger.common.config import NodeConfig, split_address
from dledger.common.errors import Code, CorruptLog, error
from dledger.common.types import LogPoint, Member, NodeId
from dledger.disk.disk import Disk
from dledger.disk.reserve import Reserves
from dledger.disk.room import RoomWatch
from dledger.group.group_record import GroupRecord
from dledger.group.hard_state import HardStateStore
from dledger.group.host import Host
from dledger.group.repair.recovering import RecoveringReplica
from dledger.group.replica import Replica
from dledger.group.upkeep import Upkeep
from dledger.log.damage.damaged_log import DamagedLog, open_damaged
from dledger.log.file_log import FileLog
from dledger.log.log_api import Damaged, DamagedRange, Log
from dledger.log.log_opening import open_log
from dledger.metrics.group import GroupMetrics
from dledger.node.identity import Identity
from dledger.node.peer_book import PeerBook
from dledger.raft.state import VoteBlocker

logger = logging.getLogger(__name__)

AnyReplica = Replica | RecoveringReplica


class GroupFiles(NamedTuple):
    """The files that stay open over all replicas of a group here, one after the other."""

    record: GroupRecord
    saver: HardStateStore
    founders: tuple[Member, ...]
    """The members that an empty log begins with."""


class Opener:
    """Of one node's groups. ``on_repaired`` is told of a group when its log can be opened (``reopen``)."""

    def __init__(
        self,
        config: NodeConfig,
        disk: Disk,
        identity: Identity,
        book: PeerBook,
        *,
        reserves: Reserves,
        room: RoomWatch,
        upkeep: Upkeep,
        host: Host,
        metrics: dict[str, GroupMetrics],
        random: Random,
        wall_clock_ms: Callable[[], int],
        on_repaired: Callable[[str], None],
    ) -> None:
        self._config = config
        self._disk = disk
        self._identity = identity
        self._book = book
        self._reserves = reserves
        self._room = room
        self._upkeep = upkeep
        self._host = host
        self._metrics = metrics
        self._random = random
        self._wall_clock_ms = wall_clock_ms
        self._on_repaired = on_repaired
        self._files: dict[str, GroupFiles] = {}
        """Of the groups that were opened."""
        self._suspected: dict[str, list[DamagedRange]] = {}
        """By group with a closed log: the damage known in it."""

    def record(self, group: str) -> GroupRecord:
        """Of a group that was opened."""
        return self._files[group].record

    async def open(self, group: str, founders: Sequence[Member] | None = None) -> AnyReplica:
        """``founders`` are the first members of an empty log, if they differ from the group's record.

        Raises CORRUPT_LOG if promises are lost, if the missing frames are not known, or if nobody is there to repair
        them. Raises CONFIG_ERROR, UNSUPPORTED_VERSION, DISK_FULL and DISK_ERROR."""
        directory = self.directory(group)
        must_exist = group in self._identity.groups  # made here by an earlier start
        kept = () if group == self._config.group else founders or ()  # the founding group's are in the configuration
        record = await GroupRecord.open(
            self._disk, directory, group, self._config.durability, founders=kept, must_exist=must_exist
        )
        saver = await HardStateStore.open(self._disk, directory, must_exist=must_exist)
        begins_with = tuple(founders) if founders is not None else record.founders
        self._files[group] = GroupFiles(record, saver, self._where_they_are_now(begins_with))
        return await self._open(group, must_exist=must_exist)

    def _where_they_are_now(self, founders: Sequence[Member]) -> tuple[Member, ...]:
        """A cluster may have moved as a whole since the group was founded: then the configuration says where to."""
        peers = self._config.peers
        return tuple(each._replace(peer_address=peers.get(each.id, each.peer_address)) for each in founders)

    def directory(self, group: str) -> Path:
        return self._config.data_dir / "groups" / group

    async def reopen(self, before: AnyReplica, why: Damaged | None = None) -> AnyReplica:
        """After ``before`` has closed its log; ``why`` it could not go on with it open. Raises as ``open``."""
        group = before.group
        if why is not None:
            self._suspected[group] = before.log.damaged()
        replica = await self._open(group, must_exist=True, why=why)
        replica.was_led_down(before.led_down)
        if isinstance(replica, Replica):
            replica.suspect(self._suspected.pop(group, []))
        lacks_tail = before.core.lacks_end or VoteBlocker.UNKNOWN_TAIL in before.core.vote_blockers
        if lacks_tail and isinstance(replica, RecoveringReplica):
            replica.wait_for_tail()
        return replica

    def forget(self, group: str) -> None:
        """It was closed for good."""
        self._files.pop(group, None)
        self._suspected.pop(group, None)

    async def _open(self, group: str, *, must_exist: bool, why: Damaged | None = None) -> AnyReplica:
        files = self._files[group]
        lacked_tail = files.record.tail_is_unknown  # an earlier start cut something, and has not asked
        log = await self._open_either(group, files, must_exist=must_exist, why=why)
        try:
            self._check_cluster_id(log)
            self._compare_address(log)
            self._compare_peers(log)
            await self._identity.keep_group(group)
            if not isinstance(log, DamagedLog):
                return await self._make_replica(log, files)
            recovering = self._recover(log, files)
            if lacked_tail:
                recovering.wait_for_tail()
            return recovering
        except BaseException:
            # Nothing was written since: what the mark said when it was found is as true as it was.
            await (log.close() if isinstance(log, DamagedLog) else log.close(in_order=log.recovery.clean_stop))
            raise

    async def _open_either(
        self, group: str, files: GroupFiles, *, must_exist: bool, why: Damaged | None
    ) -> FileLog | DamagedLog:
        if why is not None:
            with suppress(Damaged):  # it is not found again: what could not be read can be
                return await self._open_damaged(group, files, why)
        try:
            return await self._open_log(group, files, must_exist=must_exist)
        except CorruptLog as refusal:
            log = await self._open_damaged(group, files, refusal)
            # A damaged log may have gone on behind the sync mark, and a lost frame there looks like room that was never
            # used. So the others are asked once it is repaired.
            files.record.tail_is_unknown = True
            return log

    async def _open_log(self, group: str, files: GroupFiles, *, must_exist: bool) -> FileLog:
        config = self._config
        reserve, is_more = self._reserves.of(group)
        if is_more:
            self._room.prove_again()
        return await open_log(
            self._disk,
            self.directory(group),
            group,
            durability=config.durability,
            limits=config.limits,
            timings=config.timings,
            initial_members=list(files.founders),
            reserve=reserve,
            must_exist=must_exist,
        )

    async def _open_damaged(self, group: str, files: GroupFiles, why: CorruptLog) -> DamagedLog:
        log = await open_damaged(self._disk, self.directory(group), group, members=list(files.founders), why=why)
        if not self._others(log) and self._founded_alone(files):
            await log.close()
            raise why
        return log

    def _others(self, log: FileLog | DamagedLog) -> set[NodeId]:
        """The nodes known in the group, by its log or, if the log lost them, from earlier meetings."""
        known = {member.id for member in log.state.members} | self._book.of(log.group).node_ids
        return known - {NodeId(self._config.id)}

    def _founded_alone(self, files: GroupFiles) -> bool:
        """Nobody else was there when the group was founded, nor is named by the configuration."""
        founders = {member.id for member in files.founders} | self._config.peers.keys()
        return founders <= {self._config.id}

    def _metrics_of(self, group: str) -> GroupMetrics:
        return self._metrics.setdefault(group, GroupMetrics(group, NodeId(self._config.id)))

    def _recover(self, log: DamagedLog, files: GroupFiles) -> RecoveringReplica:
        return RecoveringReplica(
            self._config,
            log,
            saver=files.saver,
            host=self._host,
            metrics=self._metrics_of(log.group),
            random=self._random,
            owes_catch_up=files.record.owes_catch_up,
            on_repaired=lambda: self._on_repaired(log.group),
        )

    async def _make_replica(self, log: FileLog, files: GroupFiles) -> Replica:
        metrics, record = self._metrics_of(log.group), files.record
        metrics.torn_bytes_cut = log.recovery.torn_bytes
        replica = Replica(
            self._config,
            log.group,
            log,
            files.saver.state,
            saver=files.saver,
            host=self._host,
            upkeep=self._upkeep,
            room=self._room,
            metrics=metrics,
            random=self._random,
            wall_clock_ms=self._wall_clock_ms,
            commit_index=await _commit_index_at(log),
        )
        record.log_is_synced()
        others = self._others(log)
        if await _owes_catch_up(record, log, is_alone=not others and self._founded_alone(files)):
            replica.wait_until_caught_up()
        record.tail_is_unknown |= log.recovery.torn_bytes > 0
        if others and record.tail_is_unknown:
            cut_behind = await _cut_behind(log, record.cut_behind)
            await record.lose_tail(cut_behind)
            replica.ask_for_tail(cut_behind)
        return replica

    def _check_cluster_id(self, log: FileLog | DamagedLog) -> None:
        stored, configured = log.state.cluster_id, self._config.cluster_id
        if stored and configured and stored != configured:
            raise error(
                Code.CONFIG_ERROR,
                f"{self._config.data_dir} belongs to cluster {stored}, not {configured}: "
                "fix --cluster-id, or use another directory",
            )

    def _compare_address(self, log: FileLog | DamagedLog) -> None:
        """Warns if the log has another address for this node. It is not refused: the log may lag, and the members may
        have this address by now."""
        known = next((member.peer_address for member in log.state.members if member.id == self._config.id), None)
        if known is not None and split_address(known) != split_address(self._config.peer_address):
            logger.warning(
                "the log has this node at another address, where the others look for it: start it there, or replace it "
                "under a new id",
                extra={"group": log.group, "address": self._config.peer_address, "in_the_log": known},
            )

    def _compare_peers(self, log: FileLog | DamagedLog) -> None:
        """Warns if the configuration has other peers than the log has members. They are not refused: a restart with the
        line of the first start works, however the members changed since."""
        configured, members = sorted(self._config.peers), sorted(member.id for member in log.state.members)
        is_told = self._config.id in configured and log.group == self._config.group  # one that joins asks the members
        if is_told and log.last.position and configured != members:
            logger.warning(
                "--peers names other nodes than the log has for members: the log counts",
                extra={"group": log.group, "peers": configured, "members": members},
            )


async def _owes_catch_up(record: GroupRecord, log: FileLog, *, is_alone: bool) -> bool:
    """Whether frames that this node acknowledged may be gone. Not when only the process died, for its writes are in the
    machine's memory. Nor when the stop before the power loss was in order. ``is_alone``: it never met another node, so
    nobody relies on it. A cut by another node's word is owed in any case: the log may be of a time before there were
    others."""
    if record.debt_is_new:
        is_none = log.recovery.clean_stop or is_alone
        await (record.settle_debt() if is_none else record.owe_catch_up())
    return record.owes_catch_up


async def _cut_behind(log: Log, earlier: LogPoint | None) -> LogPoint:
    """Up to this point the node surely has everything that it acknowledged. It is the end of its log, unless a start
    before cut the log at ``earlier``. That start may have taken others' frames behind ``earlier`` by no leader's word.
    If a leader cut ``earlier`` from this log, or trimmed it, then the leader had all committed frames. (A trimmed point
    was committed itself.)"""
    last, start = log.last, log.state.start
    if earlier is None or earlier.position >= last.position:
        return last
    if earlier.position <= start.position:
        return start
    try:
        there = (await log.read(earlier.position, 1))[0].header.point
    except Damaged as damage:
        return max(damage.range.previous, start)
    return earlier if there == earlier else last


async def _commit_index_at(log: Log) -> int:
    """The last record committed as far as the commit hint says."""
    position = min(log.commit_hint, log.last.position)
    if position <= log.state.start.position:
        return log.state.first_index - 1
    try:
        frames = await log.read(position, 1)
    except Damaged:
        return log.state.first_index - 1  # less than is committed, never more
    return frames[0].header.end_index - 1
