"""The directory of groups on one node: what operators, clients and other nodes ask of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from dledger.client.between_nodes import OtherNodes
from dledger.common.config import GRPC_PORT_OFFSET, join_address, split_address
from dledger.common.errors import Code, DLedgerError, error, quoted
from dledger.common.types import DEFAULT_GROUP, META_GROUP, Member, NodeId, Role, check_group_name
from dledger.etcdpb.rpc_pb2 import TxnRequest
from dledger.group.failing import as_refusal
from dledger.group.replica import Replica
from dledger.node.node import Node
from dledger.server.group_upkeep import GroupUpkeep
from dledger.server.meta.group_records import GroupEntry, GroupMembers, change_txn, create_txn, remove_txn
from dledger.server.meta.group_table import GroupTable, no_group
from dledger.server.meta.meta_store import MetaStore
from dledger.store.commands import command

logger = logging.getLogger(__name__)

SEAL_WAIT_S = 4.0
"""How long a deletion waits for the group's own leader: less than a client gives one attempt."""

MAX_ATTEMPTS = 20
"""At a change of a record that others change at the same time."""
MAX_GROUPS = 200
"""Of a cluster, beside the two that it begins with."""


def no_node(node_id: NodeId, remedy: str) -> DLedgerError:
    return error(Code.UNKNOWN_MEMBER, f"{quoted(node_id)} is not a node of this cluster: {remedy}")


class Directory:
    """Of one node. The groups are records of the store. Its task runs from ``start``, once the node has joined the
    others, to ``stop``. ``others`` is the way to the leaders of groups on other nodes."""

    def __init__(self, node: Node, meta: MetaStore, random: Random, others: OtherNodes) -> None:
        self._node = node
        self._meta = meta
        self._others = others
        self._upkeep = GroupUpkeep(node, self, random, others)
        meta.on_groups = self._upkeep.wake
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._upkeep.run(), name="groups")
        self._task.add_done_callback(self._on_ended)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _on_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._node.on_failure(META_GROUP, as_refusal(failure, META_GROUP))

    def on_members(self) -> None:
        """The members of some group are others, or their change is committed."""
        self._upkeep.wake()

    # Its state ---------------------------------------------------------------------------------------------------

    def meta(self) -> Replica:
        """Raises LEADER_NOT_READY while the log of `meta` is being repaired here."""
        return self._meta.replica()

    @property
    def table(self) -> GroupTable:
        """As of what is applied here."""
        return self._meta.table

    @property
    def is_current(self) -> bool:
        """Whether all that this node knows to be committed is applied here. If not, its upkeep is told once it is."""
        is_current = self._meta.is_current
        if not is_current:
            self._meta.tell_when_current()
        return is_current

    async def barrier(self) -> None:
        """Returns when everything that was committed before the call is applied here. Raises NOT_LEADER on other nodes
        than the leader of `meta`, and LEADER_NOT_READY."""
        await self._meta.local_barrier()

    async def _change(self, propose: Callable[[], TxnRequest | None]) -> None:
        """Carries out a transaction of ``propose``, which judges the records as they are applied here. None: there is
        nothing to change. It is asked again when a record was changed meanwhile. Raises what ``propose`` raises, and
        the errors of an append."""
        for _ in range(MAX_ATTEMPTS):
            txn = propose()
            if txn is None:
                return
            answer = await self._meta.runner.submit(command(txn, is_system=True))
            if answer.succeeded:
                return
        raise error(Code.CHANGE_PENDING, "others change the record of that group all the time; try again later")

    # What operators ask, of the leader of `meta` -----------------------------------------------------------------

    async def groups(self) -> list[GroupEntry]:
        """All groups, by name, as of a moment after the call. Raises NOT_LEADER, LEADER_NOT_READY."""
        await self.barrier()
        entries = self.table.groups
        return [entries[name] for name in sorted(entries)]

    async def create(self, name: str, members: Sequence[NodeId], *, dry_run: bool = False) -> GroupEntry:
        """Makes a group of these nodes, or of the voters of `meta`. Raises UNEXPECTED_ARGUMENT, GROUP_EXISTS,
        UNKNOWN_MEMBER, and the errors of an append. Raises CHANGE_REFUSED for a node with a disk in doubt or
        unknown."""
        check_group_name(name)
        known = await self.groups()
        self.table.check_free(name)
        if len(known) > MAX_GROUPS:
            raise error(Code.CHANGE_REFUSED, f"the cluster has {MAX_GROUPS} groups, and takes no more: delete one")
        founders = self.founders(members)
        if dry_run:
            return GroupEntry(name, 0, tuple(founders), GroupMembers(tuple(founders)))
        await self._change(partial(self._creation, name, founders))
        made = self.table.groups.get(name)
        if made is None:
            raise no_group(name)  # somebody has deleted it already
        return made

    def _creation(self, name: str, founders: Sequence[Member]) -> TxnRequest:
        self.table.check_free(name)
        return create_txn(name, founders)

    async def create_default(self) -> None:
        """`default`, unless there is one. Raises the errors of an append."""
        if DEFAULT_GROUP not in self.table.groups:
            await self._change(partial(self._creation, DEFAULT_GROUP, self.founders([])))

    async def delete(self, name: str, group_id: int = 0, *, force: bool = False, dry_run: bool = False) -> GroupEntry:
        """Removes a group; returns when its log is sealed and its record is gone. No append is acknowledged after that.
        With ``force`` nothing waits for the seal: members of the group may acknowledge records until they hear of the
        removal, and those are gone.

        Raises UNKNOWN_GROUP, CHANGE_REFUSED for a ``group_id`` of another group, UNSUPPORTED for the cluster's own
        groups, and the errors of an append. Raises LEADER_NOT_READY if the log cannot be sealed now; the removal then
        goes on by itself, as soon as a majority of the group's voters is there.
        """
        await self.barrier()
        entry = self.table.removable(name, group_id)
        if dry_run:
            return entry
        await self._change(partial(self._sealing, name, entry.id))
        if force:
            await self.remove_record(entry)
        else:
            await self._removed(entry)
        return entry._replace(is_sealing=True)

    def _sealing(self, name: str, group_id: int) -> TxnRequest | None:
        entry = self.table.removable(name, group_id)
        return None if entry.is_sealing else change_txn(entry, entry._replace(is_sealing=True))

    async def remove_record(self, entry: GroupEntry) -> None:
        """Of a group that is being removed. Raises UNKNOWN_GROUP if it is gone, and the errors of an append."""

        def removal() -> TxnRequest:
            known = self.table.of_id(entry.name, entry.id)
            if not known.is_sealing:
                text = f"group {quoted(entry.name)} of id {entry.id} is not being removed"
                raise error(Code.UNKNOWN_GROUP, text)
            return remove_txn(known)

        await self._change(removal)

    async def _removed(self, entry: GroupEntry) -> None:
        """Returns when the record of the group is gone. Raises LEADER_NOT_READY after ``SEAL_WAIT_S``."""
        try:
            async with asyncio.timeout(SEAL_WAIT_S):
                while entry.id not in self.table.removed_ids:
                    await self._meta.runner.wait_applied(self._meta.runner.applied_index + 1)
        except TimeoutError:
            voters = ", ".join(each.id for each in entry.members if each.voter)
            text = f"{quoted(entry.name)} is being deleted, as soon as a majority of its voters ({voters}) is there"
            raise error(Code.LEADER_NOT_READY, f"{text} to seal its log; force does not wait for them") from None

    async def record_members(self, entry: GroupEntry, known: GroupMembers) -> None:
        """What a group's leader knows of its members is in the directory when it returns. Older news than the record's
        changes nothing. Raises UNKNOWN_GROUP, and what an append raises."""

        def news() -> TxnRequest | None:
            recorded = self.table.of_id(entry.name, entry.id)
            if known.as_of.position <= recorded.known.as_of.position:
                return None
            return change_txn(recorded, recorded._replace(known=known))

        await self._change(news)

    # Members of the cluster --------------------------------------------------------------------------------------

    async def address_of(self, node_id: NodeId, given: str) -> str:
        """The address at which other nodes reach ``node_id``, a node of the cluster to be added to another group than
        `meta`. Raises UNKNOWN_MEMBER if it is no member of `meta`. Raises UNEXPECTED_ARGUMENT if ``given`` is not empty
        and is not its address."""
        known = {each.id: each.peer_address for each in self.meta().log.state.members}
        if node_id not in known:  # it may have been added a moment ago
            known = await self._ask_for_nodes()
        address = known.get(node_id)
        if address is None:
            raise no_node(node_id, "add it to the cluster first (dledger admin add ID=HOST:PORT)")
        if given and split_address(given) != split_address(address):
            raise error(Code.UNEXPECTED_ARGUMENT, f"{node_id} is a node of this cluster at {address}, not at {given}")
        return address

    async def _ask_for_nodes(self) -> dict[NodeId, str]:
        """Of the leader of `meta`. Raises LEADER_NOT_READY if it cannot be asked now."""
        meta = self.meta()
        try:
            return await self._others.members_of_cluster(
                self.addresses_of(meta.log.state.members), self._node.cluster_id
            )
        except DLedgerError as refusal:
            text = (
                f"which nodes the cluster has is not known, as the leader of {META_GROUP!r} does not answer: {refusal}"
            )
            raise error(Code.LEADER_NOT_READY, text) from refusal

    async def tell(self, replica: Replica) -> None:
        """The directory knows of a change of the group's members when it returns, if it can be told now; else it is
        told later."""
        entry = self.entry_of(replica.group)
        if entry is not None:
            try:
                await self._upkeep.tell(entry, replica)
            except DLedgerError as refusal:
                logger.info(
                    "the directory is told later of the members", extra={"group": replica.group, "why": refusal}
                )

    def entry_of(self, key: str) -> GroupEntry | None:
        """The group with that key among the nodes; None if it is not known here."""
        return next((each for each in self.table.groups.values() if each.key == key), None)

    async def check_leaves(self, node_id: NodeId) -> None:
        """Raises CHANGE_REFUSED while a node that is to leave the cluster is a member of a group beside `meta`."""
        groups = [entry.name for entry in await self.groups() if entry.names(node_id)]
        if groups:
            raise error(
                Code.CHANGE_REFUSED,
                f"{node_id} is a member of {', '.join(groups)} too: remove it there first (dledger admin remove "
                f"{node_id} --group NAME), or let `dledger admin remove {node_id} --move` do that",
                groups=",".join(groups),
            )

    def addresses_of(self, members: Sequence[Member]) -> list[str]:
        """The addresses at which the API of these nodes may be reached from here. Addresses told to clients may be of
        use to clients alone. So the default port of the API, beside the port for nodes, comes last."""
        told = [self._node.client_address(each.id) for each in members]
        beside = [split_address(each.peer_address) for each in members]
        return [*filter(None, told), *(join_address(host, port + GRPC_PORT_OFFSET) for host, port in beside)]

    def members_of(self, name: str) -> list[Member]:
        """The nodes to ask about a group without a replica here, connected ones first. For an unknown group: the leader
        of `meta`, as it knows all groups."""
        entry = self.table.groups.get(name)
        if entry is not None:
            return sorted(entry.members, key=lambda each: not self._node.is_connected(each.id))
        meta = self._node.groups.replicas.get(META_GROUP)
        return [] if meta is None else [each for each in meta.log.state.members if each.id == meta.leader_id]

    # Founders ----------------------------------------------------------------------------------------------------

    def founders(self, ids: Sequence[NodeId]) -> list[Member]:
        """Nodes of the cluster, or the voters of `meta`, with the disks that they have now: no other disk takes part in
        the founding. Raises UNKNOWN_MEMBER, UNEXPECTED_ARGUMENT and CHANGE_REFUSED."""
        meta = self.meta()
        members = {member.id: member for member in meta.log.state.members}
        wanted = list(ids) or [each.id for each in members.values() if each.voter]
        if len(set(wanted)) != len(wanted):
            raise error(Code.UNEXPECTED_ARGUMENT, "a member is named twice: name each once")
        return [self._founder(node_id, members) for node_id in wanted]

    def _founder(self, node_id: NodeId, members: dict[NodeId, Member]) -> Member:
        member = members.get(node_id)
        if member is None:
            raise no_node(node_id, "add it first")
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

    async def check_exists(self, name: str) -> None:
        """Raises UNKNOWN_GROUP if there surely is no group of that name, and GROUP_SEALED if it is being removed. Only
        the leader of `meta` can tell, by a linearizable read. Other nodes may not have heard of it yet, and this
        returns."""
        replica = self._node.groups.replicas.get(META_GROUP)
        if replica is None or replica.role is not Role.LEADER:
            return
        try:
            await self.barrier()
        except DLedgerError as failure:
            logger.debug("whether the group exists is not known", extra={"group": name, "why": failure})
            return
        entry = self.table.groups.get(name)
        if entry is None:
            raise self.refusal(name) if name == DEFAULT_GROUP else no_group(name)
        if entry.is_sealing:
            raise error(Code.GROUP_SEALED, f"the group {quoted(name)} is being removed, and takes no record any more")

    def refusal(self, name: str) -> DLedgerError:
        """The refusal of a caller that asks this node for a group that is not here."""
        if name == DEFAULT_GROUP and name not in self.table.groups:
            return error(Code.LEADER_NOT_READY, "the cluster is being founded: dledger health says what is waited for")
        return error(Code.NOT_HERE, f"{self._node.config.id} has no replica of group {quoted(name)}: ask another")
