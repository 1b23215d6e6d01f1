"""The members of each group and their addresses, as far as this client was told."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dledger.common.errors import Code, DLedgerError, error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dledger.v1 import log_pb2


class MemberInfo(NamedTuple):
    """One member as a node describes it: addresses are host:port, as advertised, and empty when that node does not know
    them."""

    id: str
    address: str
    peer_address: str
    http_address: str
    voter: bool


class Metadata(NamedTuple):
    """A group as one node knows it. ``leader_id`` is None when it knows of none."""

    group: str
    cluster_id: str
    term: int
    leader_id: str | None
    members: tuple[MemberInfo, ...]
    group_id: int = 0
    """A group that was deleted and made again has another one. 0: one of the cluster's own."""

    @property
    def log_id(self) -> str:
        """Names this log among all logs there ever were: indexes of another one mean nothing here."""
        return f"{self.cluster_id}/{self.group}.{self.group_id}"

    def address_of(self, member_id: str | None) -> str:
        """Where clients reach a member, or the empty string."""
        return next((member.address for member in self.members if member.id == member_id), "")

    @staticmethod
    def from_wire(answer: log_pb2.GetMetadataResponse) -> Metadata:
        members = tuple(
            MemberInfo(member.id, member.address, member.peer_address, member.http_address, member.voter)
            for member in answer.members
        )
        return Metadata(
            answer.group, answer.cluster_id, answer.term, answer.leader_id or None, members, answer.group_id
        )


class ClusterBook:
    """Shared by all logs of one client: the cluster, and its nodes' addresses, from whichever group told of them."""

    def __init__(self, endpoints: Sequence[str], cluster_id: str = "") -> None:
        """``cluster_id``: the only cluster to be used; empty: the cluster that the endpoints turn out to be of."""
        self.endpoints = tuple(endpoints)
        self.groups: dict[str, Metadata] = {}
        """The newest that was told of each group."""
        self.has_met_all = bool(cluster_id)
        """Whether the endpoints given were asked of which cluster they are, all of them at once."""
        self._cluster_id = cluster_id
        self._cluster_is_given = bool(cluster_id)
        self._of_us: set[str] = set()
        """The addresses of nodes that said they are of our cluster."""
        self._of_others: set[str] = set()
        """The addresses of nodes that said last they are of another one."""
        self.conflict: DLedgerError | None = None
        """Why this client can be of no use: it was given the endpoints of two clusters."""

    @property
    def addresses(self) -> list[str]:
        """The endpoints given, then the members of all groups."""
        members = (member.address for told in self.groups.values() for member in told.members if member.address)
        return list(dict.fromkeys([*self.endpoints, *members]))

    def learn(self, group: str, told: Metadata, teller: str) -> tuple[Metadata, bool]:
        """Takes in the metadata of a group from the node at ``teller``. Returns it, with its unknown addresses filled
        in, and whether it is news: not of an earlier term than the known one.

        Raises UNKNOWN_CLUSTER for a node of another cluster than the one given, or the first that a node was of:
        indexes mean nothing there.
        """
        self._check_cluster(told, teller)
        told = self._filled_in(group, told)
        known = self.groups.get(group)
        if known is not None and told.term < known.term:
            return told, False
        self.groups[group] = told
        return told, True

    def forget(self, group: str) -> None:
        """The group was deleted: another of that name would begin with the first term."""
        self.groups.pop(group, None)

    def is_of_us(self, address: str) -> bool:
        """Whether the node there has said that it is of our cluster."""
        return address in self._of_us

    def is_of_others(self, address: str) -> bool:
        """Whether the node there has said that it is of another cluster. It may have been emptied, while the others
        still take it for one of ours."""
        return address in self._of_others

    def _check_cluster(self, told: Metadata, teller: str) -> None:
        if not told.cluster_id:
            return  # it was started a moment ago, and is of none yet
        self._cluster_id = self._cluster_id or told.cluster_id
        if told.cluster_id == self._cluster_id:
            self._of_us.add(teller)
            self._of_others.discard(teller)
            return
        self._of_others.add(teller)
        if self._cluster_is_given:
            remedy = f"{self._cluster_id} was asked for: give the endpoints of that one"
        else:
            remedy = f"the others to {self._cluster_id}: give the endpoints of one cluster only, or its cluster_id too"
        refusal = error(
            Code.UNKNOWN_CLUSTER,
            f"{teller} belongs to cluster {told.cluster_id}, {remedy}; if that node was emptied and founded another, "
            "its log is not the one you know",
        )
        if not self._cluster_is_given and self._was_given_for_ours(teller):
            self.conflict = refusal
        raise refusal

    def _was_given_for_ours(self, teller: str) -> bool:
        """Whether only the caller takes it for one of ours. It never said so, and it is no member's address. (A node at
        a member's address may have been emptied.) Nobody can tell then which of the two clusters is meant."""
        is_member = any(member.address == teller for told in self.groups.values() for member in told.members)
        return teller in self.endpoints and teller not in self._of_us and not is_member

    def _filled_in(self, group: str, told: Metadata) -> Metadata:
        """A node that was started a moment ago has not met everyone yet."""
        if all(member.address for member in told.members):
            return told
        own = self.groups.get(group)
        tellers = [*self.groups.values(), *([own] if own else [])]  # the group's own word counts more than the others'
        known = {(each.id, each.peer_address): each for one in tellers for each in one.members if each.address}
        return told._replace(members=tuple(_fill_in(member, known) for member in told.members))


class AddressBook:
    """Every address that may lead to one group: members come and go, and the endpoints given may all be gone one day.

    A member is struck out only when the leader does not name it any more. A node that lags, or was removed itself,
    still names former members.
    """

    def __init__(self, cluster: ClusterBook, group: str) -> None:
        self.cluster = cluster
        self._group = group
        self._learned: list[str] = []
        self._told_by_leader: Metadata | None = None

    @property
    def metadata(self) -> Metadata | None:
        """The newest that was told."""
        return self.cluster.groups.get(self._group)

    @property
    def addresses(self) -> list[str]:
        """In the order in which to ask: the members as last told of, those of before, then all others known."""
        return list(dict.fromkeys([*self._learned, *self.cluster.addresses]))

    def learn(self, told: Metadata, teller: str) -> Metadata:
        """Takes in the metadata from the node at ``teller``; returns it with its unknown addresses filled in.

        Raises UNKNOWN_CLUSTER as ``ClusterBook.learn``.
        """
        told, is_news = self.cluster.learn(self._group, told, teller)
        if not is_news:
            return told
        addresses = [member.address for member in told.members if member.address]
        by_the_leader = told.address_of(told.leader_id) == teller
        if by_the_leader:
            self._told_by_leader = told
        self._learned = addresses if by_the_leader else list(dict.fromkeys([*addresses, *self._learned]))
        return told

    def forget(self) -> None:
        """The group was deleted. The addresses stay: another group of that name may be there."""
        self.cluster.forget(self._group)
        self._told_by_leader = None

    def names(self, node: str) -> bool:
        """Whether the leader, as last heard, has a member of that id or address; True before it was heard."""
        told = self._told_by_leader
        return told is None or any(node in {member.id, member.address} for member in told.members)


def _fill_in(member: MemberInfo, known: dict[tuple[str, str], MemberInfo]) -> MemberInfo:
    earlier = known.get((member.id, member.peer_address))
    if member.address or earlier is None:
        return member
    return member._replace(address=earlier.address, http_address=earlier.http_address)
