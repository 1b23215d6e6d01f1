"""A node of a cluster, with the directory of its groups: what ``dledger serve`` runs, and what is inside
``dledger.Node``.

The group `meta` is founded from the configuration. The store is the state machine on it, and holds the directory of
groups. Its first leader founds `default`
on the same members, and an empty name of a group means `default`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from dledger.client.between_nodes import OtherNodes
from dledger.common.config import NodeConfig
from dledger.common.errors import Code, DLedgerError, error
from dledger.common.types import DEFAULT_GROUP, META_GROUP, Member
from dledger.disk.disk import Disk
from dledger.group.replica import Replica
from dledger.node import node
from dledger.server.directory import Directory
from dledger.server.forwarding import Forwarder
from dledger.server.meta.at_leader import AtLeader, LeadingNode
from dledger.server.meta.meta_store import MACHINE_NAME, MetaStore
from dledger.transport.transport_api import Transport


class ClusterNode(node.Node):
    """The arguments behind ``config`` are for tests and simulations, which replace them."""

    def __init__(
        self,
        config: NodeConfig,
        *,
        disk: Disk | None = None,
        transport: Transport[Any] | None = None,
        random: Random | None = None,
        wall_clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        others: OtherNodes | None = None,
        forwarder: Forwarder | None = None,
        at_leader: Callable[[Callable[[], Replica]], AtLeader] | None = None,
    ) -> None:
        """``others``, ``forwarder`` and ``at_leader`` are the ways to other nodes' API; a simulation replaces them
        too."""
        random = random or Random()  # seeded by the operating system
        config = replace(config, group=META_GROUP)
        super().__init__(config, disk=disk, transport=transport, random=random, wall_clock_ms=wall_clock_ms)
        self.forwarder = forwarder or Forwarder(self)
        self.meta = MetaStore(self, random, at_leader or partial(LeadingNode, forwarder=self.forwarder))
        self.directory = Directory(self, self.meta, random, others or OtherNodes())
        self.groups.unnamed = DEFAULT_GROUP
        self.groups.refusal = self.directory.refusal

    async def join(self) -> None:
        await super().join()
        self.meta.start()
        self.directory.start()

    async def stop(self) -> None:
        await self.forwarder.close()
        await self.directory.stop()
        await self.meta.stop()
        await super().stop()

    # The others, for calls that are sent on (Map) ----------------------------------------------------------------

    @property
    def own_address(self) -> str:
        return self.config.client_address

    def members_to_ask(self, group: str, refusal: DLedgerError) -> list[Member]:
        if refusal.code is not Code.NOT_LEADER:
            return self.directory.members_of(self.groups.name_of(self.groups.key_of(group)))
        replica = self.groups.replicas.get(self.groups.key_of(group))
        members = replica.log.state.members if replica is not None else ()
        return [each for each in members if each.id == refusal.metadata.get("leader_id")]

    def addresses_of(self, member: Member) -> list[str]:
        return self.directory.addresses_of([member])

    def on_members(self, group: str, members: Sequence[Member], *, is_committed: bool) -> None:
        super().on_members(group, members, is_committed=is_committed)
        self.directory.on_members()

    def on_failure(self, group: str, failure: DLedgerError) -> None:
        # The node ends with either of the cluster's own groups: its supervisor starts it again.
        super().on_failure(META_GROUP if group == DEFAULT_GROUP else group, failure)

    async def find(self, group: str) -> Replica:
        """As ``replica``, and sure of missing groups. It raises UNKNOWN_GROUP only after a read of the directory that
        began after the call, else NOT_HERE."""
        return await self._surely(self.replica, group)

    async def find_for_users(self, group: str) -> Replica:
        """As ``user_replica``, and sure of missing groups."""
        return await self._surely(self.user_replica, group)

    async def _surely(self, look: Callable[[str], Replica], group: str) -> Replica:
        try:
            return look(group)
        except DLedgerError as refusal:
            await self.check_exists(group, refusal)
            raise

    async def check_exists(self, group: str, refusal: DLedgerError) -> None:
        """Raises UNKNOWN_GROUP if that is why the group was refused."""
        if refusal.code is Code.NOT_HERE:
            await self.directory.check_exists(self.groups.name_of(group))

    def user_replica(self, group: str) -> Replica:
        """For users' appends, trims and retention: the log of a state machine belongs to the state machine alone.
        Raises UNSUPPORTED, and the errors of ``replica``."""
        replica = self.replica(group)
        machine, name = replica.settings.current.machine, self.groups.name_of(replica.group)
        if replica.settings.current.is_sealed:
            # Another group may have the name by now: this node hears of it later than others.
            raise error(Code.NOT_HERE, f"the group {name!r} on {self.config.id} is being removed: ask another")
        if machine or replica.group == META_GROUP:
            raise error(
                Code.UNSUPPORTED,
                f"group {name!r} is the log of a state machine ({machine or MACHINE_NAME}), and takes no records of "
                "others, nor trims: use another group",
            )
        return replica
