"""The groups of one node: which are here, opened and found again, opened anew after a repair, closed and removed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, NamedTuple

from dledger.common.batches import in_batches
from dledger.common.closing import unless_cancelled
from dledger.common.config import NodeConfig
from dledger.common.errors import Code, DLedgerError, error, quoted
from dledger.common.types import META_GROUP, Member, Position, Term, name_in
from dledger.disk.disk import Disk, remove_directory, run_to_the_end
from dledger.group.failing import as_refusal
from dledger.group.group_record import GroupRecord
from dledger.group.host import Host
from dledger.group.repair.recovering import RecoveringReplica
from dledger.group.replica import Replica
from dledger.log.log_api import Damaged
from dledger.metrics.group import GroupMetrics
from dledger.node.identity import Identity, copied_by_hand
from dledger.node.opening import AnyReplica, Opener
from dledger.node.peer_book import is_before
from dledger.node.peer_trust import TrustListener
from dledger.node.peers import Peers

logger = logging.getLogger(__name__)


class LogPosition(NamedTuple):
    """How far a group's log was committed when a node told its members."""

    position: Position
    term: Term

    def supersedes(self, replica: Replica) -> bool:
        """Whether no change of the members in the replica's log can be later: what it says of them is older, or will
        never be committed."""
        changed_at = replica.log.state.members_position
        if changed_at <= self.position:
            return True
        is_committed = changed_at <= replica.core.commit_position
        return not is_committed and replica.log.term_at(changed_at) < self.term


class Groups:
    """Made before the node opens its data directory; ``begin`` hands over the parts made from the directory.

    Groups are opened and removed one after the other, under ``changing``. ``host`` is told of a group that cannot go on
    because its log could not be opened anew.
    """

    def __init__(self, config: NodeConfig, disk: Disk, host: Host) -> None:
        self.replicas: dict[str, Replica] = {}
        self.recovering: dict[str, RecoveringReplica] = {}
        """Groups with a log under repair, before it can be opened; then they are among ``replicas``."""
        self.unopened: dict[str, DLedgerError] = {}
        """Groups with files here that could not be opened, and why."""
        self.metrics: dict[str, GroupMetrics] = {}
        self.names: dict[str, str] = {}
        """Groups that others know by another name than this node: their name → the name here."""
        self.unnamed = config.group
        """Which group an empty name means."""
        self.refusal: Callable[[str], DLedgerError] = self._unknown
        """The refusal of a name that no group here has."""
        self.on_called: Callable[[str, Term], bool] = lambda *_: False
        """Told of a leader's message, and its term, for a group that is not here. Returns whether somebody sees to
        that."""
        self.changing = asyncio.Lock()
        """Held by a step of the node's start too; its stop waits for it."""
        self.is_stopped = False
        """The node stops: nothing is opened any more."""
        self._config = config
        self._disk = disk
        self._host = host
        self._reopening: dict[asyncio.Task[None], str] = {}
        """Which group each of them opens anew."""
        self._opened: tuple[Identity, Opener, Peers] | None = None

    def begin(self, identity: Identity, opener: Opener, peers: Peers) -> None:
        """The node has opened its data directory."""
        self._opened = identity, opener, peers

    @property
    def _identity(self) -> Identity:
        assert self._opened is not None, "begin comes first"
        return self._opened[0]

    @property
    def _opener(self) -> Opener:
        assert self._opened is not None, "begin comes first"
        return self._opened[1]

    @property
    def _peers(self) -> Peers:
        assert self._opened is not None, "begin comes first"
        return self._opened[2]

    # What is here ------------------------------------------------------------------------------------------------

    def all(self) -> list[AnyReplica]:
        return [*self.replicas.values(), *self.recovering.values()]

    def has(self, group: str) -> bool:
        """Whether the group is here, also while its log is under repair, or when its files cannot be opened."""
        return group in self.replicas or group in self.recovering or group in self.unopened

    def get(self, group: str) -> Replica:
        """Raises UNKNOWN_GROUP, CORRUPT_LOG while its log is being repaired, and what ended it."""
        key = self.key_of(group)
        replica = self.replicas.get(key)
        if key in self.unopened:
            raise self.unopened[key].copy()
        if replica is None and key in self.recovering:
            raise self.recovering[key].refusal()
        if replica is None:
            raise self.refusal(self.name_of(key))
        if replica.failure is not None:
            raise replica.failure
        return replica

    def present(self, group: str) -> AnyReplica:
        """The group's replica, also while its log is under repair. Raises UNKNOWN_GROUP."""
        key = self.key_of(group)
        found = self.replicas.get(key) or self.recovering.get(key)
        if found is None:
            raise self.refusal(self.name_of(key))
        return found

    def is_open(self, group: str) -> bool:
        """Whether ``present`` has it."""
        key = self.key_of(group)
        return key in self.replicas or key in self.recovering

    def key_of(self, name: str) -> str:
        """The name here of the group that others call ``name``."""
        name = name or self.unnamed
        return self.names.get(name, name)

    def name_of(self, key: str) -> str:
        """The others' name for the group called ``key`` here."""
        return next((name for name, known in self.names.items() if known == key), name_in(key))

    def record(self, group: str) -> GroupRecord:
        """Of a group that is open."""
        return self._opener.record(group)

    @property
    def cluster_id(self) -> str:
        """Empty until the first leader's no-op, which carries it, is committed. An uncommitted one may yet be cut, and
        a node must not be turned away for it."""
        minted = (each.log.state.cluster_id for each in self.all() if each.core.commit_position > 0)
        return next(filter(None, minted), self._config.cluster_id)

    @property
    def told_cluster_id(self) -> str:
        """As far as any log here says it, committed or not."""
        return next(filter(None, (each.log.state.cluster_id for each in self.all())), "")

    def _unknown(self, name: str) -> DLedgerError:
        known = ", ".join([*self.replicas, *self.recovering]) or "none"
        return error(Code.UNKNOWN_GROUP, f"{self._config.id} has no group {quoted(name)}; it has: {known}")

    def check_wanted(self) -> None:
        """Raises SHUTTING_DOWN."""
        if self.is_stopped:
            raise error(Code.SHUTTING_DOWN, "the node was stopped while it started")

    # A start -----------------------------------------------------------------------------------------------------

    async def open_found(self, founders: Sequence[Member]) -> None:
        """Opens the founding group, which is made with ``founders`` if it is not there, and every other group on this
        disk. Raises what ``Opener.open`` raises, and CONFIG_ERROR or UNSUPPORTED_VERSION for a directory without the
        founding group."""
        self._check_founding_group()
        await self._finish_removals()
        founding = self._config.group
        await self._open_one(founding, founders)
        others = [group for group in self._identity.groups if group != founding]
        await in_batches([partial(self._open_or_leave, group) for group in others])

    def _check_founding_group(self) -> None:
        groups, config = self._identity.groups, self._config
        if not groups or config.group in groups:
            return
        if config.group == META_GROUP:
            raise error(
                Code.UNSUPPORTED_VERSION,
                f"{config.data_dir} was written by a dledger whose clusters had no group {META_GROUP!r}: "
                f"{copied_by_hand(config.data_dir, groups[0])}",
            )
        raise error(
            Code.CONFIG_ERROR,
            f"{config.data_dir} belongs to group {groups[0]!r}, not {config.group!r}: use another directory",
        )

    async def _open_or_leave(self, group: str) -> None:
        """A group with unusable files does not keep the others from going on. A disk that is full or fails does:
        another start may find it mended."""
        try:
            await self._open_one(group)
        except DLedgerError as failure:
            if failure.code not in (Code.CORRUPT_LOG, Code.UNSUPPORTED_VERSION):
                raise
            logger.critical(
                "a group cannot be opened", extra={"group": group, "code": failure.code.value, "why": failure}
            )
            self.unopened[group] = failure

    async def _open_one(self, group: str, founders: Sequence[Member] | None = None) -> None:
        self._admit(await self._opener.open(group, founders))

    def _admit(self, replica: AnyReplica) -> None:
        """From now on it is told of everything that concerns its group."""
        group = replica.group
        self.take(replica)
        trust = self._peers.add_group(group, partial(self._listener, group))
        if group != self._config.group:  # its founders are named with their disks: no other disk is believed
            trust.set_may_found(bool(self.record(group).founders))
        self._tell_members(group)

    def take(self, replica: AnyReplica) -> None:
        """It stands for its group from now on."""
        self.recovering.pop(replica.group, None)
        self.replicas.pop(replica.group, None)
        if isinstance(replica, RecoveringReplica):
            self.recovering[replica.group] = replica
        else:
            self.replicas[replica.group] = replica

    def _tell_members(self, group: str) -> None:
        replica = self.present(group)
        if isinstance(replica, RecoveringReplica):
            replica.tell_members()
        else:
            replica.roster.tell()

    def _listener(self, group: str) -> TrustListener:
        replica = self.present(group)
        return replica if isinstance(replica, RecoveringReplica) else replica.roster

    async def begin_start(self) -> None:
        """What this start found is durable, before the node speaks. Raises DISK_FULL or DISK_ERROR."""
        await in_batches([self.record(replica.group).begin_start for replica in self.all()])

    def start(self) -> None:
        for replica in self.all():
            replica.start()

    # Groups that come and go -------------------------------------------------------------------------------------

    async def open(self, group: str, founders: Sequence[Member]) -> None:
        """Opens a group that is not on this disk yet, and takes part in it. ``founders`` are its first members, each
        with the disk named in the record of the group. This node votes in an empty log only if it is one of them, and
        never dropped the group. It joins as a learner when it is not, or when its disk is in an older state. Returns at
        once when the group is open already. May be called again after it raised.

        Raises UNKNOWN_GROUP for a group removed for good, LEADER_NOT_READY before the cluster has its id. Raises the
        errors of opening: DISK_FULL, DISK_ERROR, CORRUPT_LOG.
        """
        async with self.changing:
            self.check_wanted()
            if group in self._identity.removed_groups:
                raise error(Code.UNKNOWN_GROUP, f"group {quoted(group)} was removed for good")
            if self.has(group):
                return
            if not self.cluster_id:
                raise error(Code.LEADER_NOT_READY, "no group is opened before the cluster has its id: try again")
            if group in self._dropped():
                await self._remove_files(group)
            is_founder = any(each.id == self._config.id and self._is_named_by(each) for each in founders)
            is_founder = is_founder and group not in self._identity.dropped_groups
            await self._join(group, founders if is_founder else ())

    async def _join(self, group: str, founders: Sequence[Member]) -> None:
        replica = await self._opener.open(group, founders)
        try:
            await self.record(group).begin_start()
        except BaseException:
            self._opener.forget(group)
            await replica.stop()
            raise
        self._admit(replica)
        replica.start()

    def _is_named_by(self, founder: Member) -> bool:
        """Whether the record of a group means the disk of this node, as it is."""
        start = self._identity.start
        return founder.node_uuid == start.node_uuid and not is_before(founder, start)

    async def remove(self, group: str) -> None:
        """Removes the group from this node for good: that is durable before its files go. Safe to call again. Raises
        DISK_FULL or DISK_ERROR."""
        async with self.changing:
            assert group != self._config.group, "the founding group stays"
            await self._identity.remove_group(group)
            await self._close(group)
            self.unopened.pop(group, None)
            await self._remove_files(group)

    async def drop(self, group: str, as_of: LogPosition) -> bool:
        """Removes the replica of a group if this node is no member any more, by the group's log committed up to
        ``as_of``. Its files go; a member again, the node begins with an empty log.

        Returns False, and does nothing, while that is not the last word. This log has a later change of the members,
        this node leads, or its log is under repair. Raises DISK_FULL or DISK_ERROR, and is to be called again then."""
        async with self.changing:
            assert group != self._config.group, "the founding group stays"
            replica = self.replicas.get(group)
            if replica is None or replica.leads or not as_of.supersedes(replica):
                return False
            await replica.stop()  # from its first moment on it takes no frame any more
            await self._identity.drop_group(group)
            self._forget(group)
            await self._remove_files(group)
            return True

    def _dropped(self) -> list[str]:
        """Groups with files yet to be removed, if the node ended before they went."""
        return [group for group in self._identity.dropped_groups if group not in self._identity.groups]

    async def _close(self, group: str) -> None:
        while reopening := [task for task, each in self._reopening.items() if each == group]:
            await asyncio.wait(reopening)  # what it opens would be there again
        replica = self.replicas.get(group) or self.recovering.get(group)
        if replica is not None:
            await (replica.end() if isinstance(replica, Replica) else replica.stop())
            self._forget(group)

    def _forget(self, group: str) -> None:
        """Its replica was stopped, for good: nothing of the group is known here any more."""
        self.replicas.pop(group, None)
        self.recovering.pop(group, None)
        self.metrics.pop(group, None)
        self._peers.remove_group(group)
        self._opener.forget(group)

    async def _remove_files(self, group: str) -> None:
        await run_to_the_end(self._disk, partial(remove_directory, self._disk, self._opener.directory(group)))

    async def _finish_removals(self) -> None:
        """Files of groups that were being removed, or dropped, when the node ended."""
        for group in [*self._identity.removed_groups, *self._dropped()]:
            await self._remove_files(group)

    # Logs that are opened anew -----------------------------------------------------------------------------------

    def on_repaired(self, group: str) -> None:
        """Nothing of the log is damaged any more: it is opened now."""
        recovering = self.recovering[group]
        self._begin_reopening(group, self._reopen(recovering, recovering.stop()))

    def on_stuck(self, group: str, why: Damaged) -> None:
        """The log is closed, and opened anew as a damaged one (``Host.on_stuck``)."""
        replica = self.replicas[group]
        logger.error("the leader's word is needed on what is damaged: the log is closed", extra={"group": group})
        self._begin_reopening(group, self._reopen(replica, replica.step_aside(why), why))

    def _begin_reopening(self, group: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name=f"reopen-{group}")
        self._reopening[task] = group
        task.add_done_callback(self._reopening.pop)

    async def _reopen(self, before: AnyReplica, closed: Coroutine[Any, Any, None], why: Damaged | None = None) -> None:
        group = before.group
        try:
            await closed
            replica = await self._opener.reopen(before, why)
            if self.is_stopped:
                await replica.stop()
                return
            self.take(replica)
            logger.info("the log was opened anew", extra={"group": group, "is_damaged": group in self.recovering})
            self._peers.trust(group).tell_all()
            self._tell_members(group)
            replica.start()
        except Exception as failure:  # noqa: BLE001 – after any failure, the node must not go on without the group
            self._host.on_failure(group, as_refusal(failure, group))

    # The end -----------------------------------------------------------------------------------------------------

    async def leave(self) -> None:
        """No appends any more, and the leaderships handed over. Committed reads go on."""
        await asyncio.gather(*(replica.leave() for replica in self.replicas.values()))

    async def stop(self) -> None:
        """Stops every replica, even if others fail to stop; the last failure is raised."""
        async with AsyncExitStack() as closing:
            for replica in self.replicas.values():
                closing.push_async_exit(unless_cancelled(replica.stop))

    async def stop_recovering(self) -> None:
        """Stops the replicas with a log under repair, and the tasks that open one anew."""
        for recovering in self.recovering.values():
            await recovering.stop()
        if self._reopening:
            await asyncio.wait(self._reopening)
