"""Joins the directory of groups to a node: what the directory says is wanted is done here, one step after the other.

::

    CreateGroup ──▶ DirectoryMachine on `meta` ──▶ every founder opens the group, and they elect
    DeleteGroup ──▶ sealing ──▶ the group's leader seals its log ──▶ removed ──▶ every node removes its files

A start opens what is on the disk without asking the directory. Only new groups and removals wait for it, and nothing is
done by a state that lags behind what this node knows to be committed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random

from dledger.client.sealing import seal_group
from dledger.common.backoff import Backoff
from dledger.common.errors import Code, DLedgerError, error, quoted
from dledger.common.types import DEFAULT_GROUP, META_GROUP, Member, NodeId, Role, Term, check_group_name
from dledger.group.failing import as_refusal
from dledger.group.replica import Replica
from dledger.node.node import Node
from dledger.server.directory_machine import (
    DirectoryMachine,
    GroupEntry,
    GroupRefused,
    create_command,
    id_of,
    no_group,
    remove_command,
    seal_command,
)
from dledger.statemachine.keeper import Keeper
from dledger.statemachine.local_log import LocalLog
from dledger.statemachine.runner import Runner

logger = logging.getLogger(__name__)

MAX_GROUPS = 200
"""Of a cluster, beside the two that it begins with."""
MACHINE_NAME = "directory"


@contextmanager
def said_to_callers() -> Iterator[None]:
    """What the state machine refuses is raised as the error that it stands for."""
    try:
        yield
    except GroupRefused as refused:
        raise refused.refusal from None


class Directory:
    """Of one node. Its task runs from ``start``, once the node has joined the others, to ``stop``."""

    def __init__(self, node: Node, random: Random) -> None:
        self._node = node
        self._random = random
        self._runner = Runner(
            LocalLog(self._meta), DirectoryMachine, random=random, name=MACHINE_NAME, is_on_a_node=True
        )
        self._runner.on_applied = self._on_applied
        self._keeper = Keeper(self._runner, MACHINE_NAME, self._meta)
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        node.add_listener(self._on_role)

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        works = (("directory", self._runner.run), ("checkpoints", self._keeper.run), ("groups", self._keep_up))
        for name, work in works:
            task = loop.create_task(work(), name=name)
            task.add_done_callback(self._on_ended)
            self._tasks.append(task)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _on_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._node.on_failure(META_GROUP, as_refusal(failure, META_GROUP))

    def _on_role(self, _group: str, _role: Role, _term: Term, _leader_id: NodeId) -> None:
        self._wake.set()

    def _on_applied(self) -> None:
        self._wake.set()

    def _meta(self) -> Replica:
        if META_GROUP in self._node.recovering:
            raise error(Code.LEADER_NOT_READY, f"the log of {META_GROUP!r} is being repaired on this node")
        return self._node.replica(META_GROUP)

    # What operators ask, of the leader of `meta` -----------------------------------------------------------------

    async def groups(self) -> list[GroupEntry]:
        """All groups, by name, as of a moment after the call. Raises NOT_LEADER, LEADER_NOT_READY."""
        await self._runner.barrier()
        entries = self._runner.machine.groups
        return [entries[name] for name in sorted(entries)]

    async def create(self, name: str, members: Sequence[NodeId], *, dry_run: bool = False) -> GroupEntry:
        """Makes a group of these nodes, or of the voters of `meta`. Raises UNEXPECTED_ARGUMENT, GROUP_EXISTS,
        UNKNOWN_MEMBER, CHANGE_REFUSED for a node whose disk is in doubt or unknown, and what an append raises."""
        check_group_name(name)
        known = await self.groups()
        with said_to_callers():
            self._runner.machine.check_free(name)
        if len(known) > MAX_GROUPS:
            raise error(Code.CHANGE_REFUSED, f"the cluster has {MAX_GROUPS} groups, and takes no more: delete one")
        founders = self._founders(members)
        if dry_run:
            return GroupEntry(name, 0, tuple(founders))
        return await self._submit(create_command(name, founders))

    async def delete(self, name: str, *, dry_run: bool = False) -> GroupEntry:
        """Begins the removal of a group; returns when the directory has it, and the group takes no append any more once
        its own leader has sealed it. Raises UNKNOWN_GROUP, UNSUPPORTED for the cluster's own groups, and what an append
        raises."""
        await self._runner.barrier()
        with said_to_callers():
            entry = self._runner.machine.removable(name)
        return entry if dry_run or entry.is_sealing else await self._submit(seal_command(name))

    async def _submit(self, command: bytes) -> GroupEntry:
        with said_to_callers():
            entry: GroupEntry = await self._runner.submit(command)
        return entry

    def _founders(self, ids: Sequence[NodeId]) -> list[Member]:
        """With the disks that they have now: no other disk takes part in the founding."""
        meta = self._meta()
        members = {member.id: member for member in meta.log.state.members}
        wanted = list(ids) or [each.id for each in members.values() if each.voter]
        if len(set(wanted)) != len(wanted):
            raise error(Code.UNEXPECTED_ARGUMENT, "a member is named twice: name each once")
        return [self._founder(node_id, members) for node_id in wanted]

    def _founder(self, node_id: NodeId, members: dict[NodeId, Member]) -> Member:
        member = members.get(node_id)
        if member is None:
            raise error(Code.UNKNOWN_MEMBER, f"{quoted(node_id)} is not a node of this cluster: add it first")
        disk = self._node.disk_of(META_GROUP, node_id)
        start = self._node.start_of(node_id)
        if not disk:
            raise error(
                Code.CHANGE_REFUSED,
                f"which disk {node_id} has is not known, or in doubt: start it, or readmit it, then try again",
            )
        is_met = start is not None and start.node_uuid == disk
        return Member(
            node_id,
            member.peer_address,
            voter=True,
            node_uuid=disk,
            admitted_start_count=start.start_count if is_met and start is not None else 0,
            admitted_start_nonce=start.start_nonces[-1] if is_met and start is not None else 0,
        )

    def refusal(self, name: str) -> DLedgerError:
        """What is said to whoever asks this node for a group that is not here. Only the leader of `meta` may say that
        there is none: others may not have heard of it yet."""
        if name == DEFAULT_GROUP and name not in self._runner.machine.groups:
            return error(Code.LEADER_NOT_READY, "the cluster is being founded: try again after a moment")
        replica = self._node.replicas.get(META_GROUP)
        if replica is not None and replica.machine.is_serving and name not in self._runner.machine.groups:
            return no_group(name)
        return error(Code.NOT_HERE, f"{self._node.config.id} has no replica of group {quoted(name)}: ask another")

    # What is done about it ---------------------------------------------------------------------------------------

    async def _keep_up(self) -> None:
        backoff = Backoff(self._random, most_ms=1_000)
        while True:
            try:
                self._wake.clear()
                await self._step()
                backoff.reset()
                await self._wake.wait()
            except DLedgerError as failure:
                logger.debug("the groups are not as they should be yet", extra={"why": failure})
                await asyncio.sleep(backoff.next_s())

    async def _step(self) -> None:
        """Raises whatever stands in the way; done again it goes on from there."""
        meta, machine = self._meta(), self._runner.machine
        leads = meta.role is Role.LEADER
        if leads:
            await self._runner.barrier()  # waits until its term's first frame is committed
            if DEFAULT_GROUP not in machine.groups:
                await self._submit(create_command(DEFAULT_GROUP, self._founders([])))
        elif self._runner.next_index is None or self._runner.applied_index < meta.reader.commit_index:
            return  # more is to come, and wakes this task
        await self._remove_what_was_removed()
        await self._open_what_is_wanted()
        if leads:
            for entry in [each for each in self._runner.machine.groups.values() if each.is_sealing]:
                addresses = [self._node.client_address(each.id) for each in entry.founders]
                await seal_group([each for each in addresses if each], entry.key)
                await self._submit(remove_command(entry))

    async def _remove_what_was_removed(self) -> None:
        removed = self._runner.machine.removed_ids
        for key in [*self._node.replicas, *self._node.recovering]:
            if id_of(key) in removed:
                logger.info("the group was removed", extra={"group": key})
                await self._node.remove_group(key)

    async def _open_what_is_wanted(self) -> None:
        node = self._node
        entries = list(self._runner.machine.groups.values())
        node.names = {entry.name: entry.key for entry in entries}
        for entry in entries:
            is_member = any(each.id == node.config.id for each in entry.founders)
            if is_member and not entry.is_sealing and not node.has_group(entry.key):
                await node.open_group(entry.key, entry.founders)
