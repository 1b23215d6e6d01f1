"""Who is in the group and where it can be reached, as far as this client was told."""

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

    def address_of(self, member_id: str | None) -> str:
        """Where clients reach a member, or the empty string."""
        return next((member.address for member in self.members if member.id == member_id), "")

    @staticmethod
    def from_wire(answer: log_pb2.GetMetadataResponse) -> Metadata:
        members = tuple(
            MemberInfo(member.id, member.address, member.peer_address, member.http_address, member.voter)
            for member in answer.members
        )
        return Metadata(answer.group, answer.cluster_id, answer.term, answer.leader_id or None, members)


class AddressBook:
    """Every address that may lead to the group: members come and go, and the endpoints given may all be gone one day.

    A member is struck out only when the leader does not name it any more: a node that lags, or was removed itself,
    tells of members as they were.
    """

    def __init__(self, endpoints: Sequence[str], cluster_id: str = "") -> None:
        """``cluster_id``: the only cluster that is meant; empty: the one that the endpoints turn out to be of."""
        self._endpoints = tuple(endpoints)
        self._learned: list[str] = []
        self.metadata: Metadata | None = None
        """The newest that was told."""
        self._told_by_leader: Metadata | None = None
        self._cluster_id = cluster_id
        self.cluster_is_given = bool(cluster_id)
        self._of_us: set[str] = set()
        """Who has said that it is of our cluster."""
        self._of_others: set[str] = set()
        """Who said last that it is of another."""
        self.conflict: DLedgerError | None = None
        """Why this client can be of no use: it was given the endpoints of two clusters."""

    @property
    def addresses(self) -> list[str]:
        """In the order in which to ask: the members as last told of, those of before, the endpoints given."""
        return list(dict.fromkeys([*self._learned, *self._endpoints]))

    def learn(self, told: Metadata, teller: str) -> Metadata:
        """Takes in what the node at ``teller`` says; returns it, with the addresses that it does not know filled in.

        Raises UNKNOWN_CLUSTER for a node of another cluster than the one given, or the first that a node was of:
        indexes mean nothing there.
        """
        self._check_cluster(told, teller)
        told = self._filled_in(told)
        if self.metadata is not None and told.term < self.metadata.term:
            return told
        self.metadata = told
        addresses = [member.address for member in told.members if member.address]
        by_the_leader = told.address_of(told.leader_id) == teller
        if by_the_leader:
            self._told_by_leader = told
        self._learned = addresses if by_the_leader else list(dict.fromkeys([*addresses, *self._learned]))
        return told

    def _check_cluster(self, told: Metadata, teller: str) -> None:
        if not told.cluster_id:
            return  # it was started a moment ago, and is of none yet
        self._cluster_id = self._cluster_id or told.cluster_id
        if told.cluster_id == self._cluster_id:
            self._of_us.add(teller)
            self._of_others.discard(teller)
            return
        self._of_others.add(teller)
        if self.cluster_is_given:
            remedy = f"{self._cluster_id} was asked for: give the endpoints of that one"
        else:
            remedy = f"the others to {self._cluster_id}: give the endpoints of one cluster only, or its cluster_id too"
        refusal = error(
            Code.UNKNOWN_CLUSTER,
            f"{teller} belongs to cluster {told.cluster_id}, {remedy}; if that node was emptied and founded another, "
            "its log is not the one you know",
        )
        if not self.cluster_is_given and self._was_given_for_ours(teller):
            self.conflict = refusal
        raise refusal

    def _was_given_for_ours(self, teller: str) -> bool:
        """Whether only the caller takes it for one of ours: it never said so, and it is no member's address, whose node
        may have been emptied. Which of the two clusters is meant nobody can tell then."""
        known = self.metadata
        is_member = known is not None and any(member.address == teller for member in known.members)
        return teller in self._endpoints and teller not in self._of_us and not is_member

    def is_of_us(self, address: str) -> bool:
        """Whether the node there has said that it is of our cluster."""
        return address in self._of_us

    def is_of_others(self, address: str) -> bool:
        """Whether the node there has said that it is of another cluster: it may have been emptied, while the others
        still take it for one of ours."""
        return address in self._of_others

    def names(self, node: str) -> bool:
        """Whether the leader, as last heard, has a member of that id or address; True before it was heard."""
        told = self._told_by_leader
        return told is None or any(node in {member.id, member.address} for member in told.members)

    def _filled_in(self, told: Metadata) -> Metadata:
        """A node that was started a moment ago has not met everyone yet."""
        if self.metadata is None or all(member.address for member in told.members):
            return told
        known = {(member.id, member.peer_address): member for member in self.metadata.members if member.address}
        return told._replace(members=tuple(_fill_in(member, known) for member in told.members))


def _fill_in(member: MemberInfo, known: dict[tuple[str, str], MemberInfo]) -> MemberInfo:
    earlier = known.get((member.id, member.peer_address))
    if member.address or earlier is None:
        return member
    return member._replace(address=earlier.address, http_address=earlier.http_address)
