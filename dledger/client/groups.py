"""The groups of a cluster: made, listed and deleted through the directory in the group ``meta``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.client.admin_results import GroupInfo
from dledger.client.arguments import check_amount, check_flag, check_group, check_names
from dledger.client.leader_calls import LeaderCalls
from dledger.common.errors import ChangeRefused, Code, GroupExists, OutcomeUnknown, UnknownGroup, error
from dledger.common.types import META_GROUP
from dledger.v1 import admin_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence


class Groups(LeaderCalls):
    """``cluster.groups``, as coroutines. Each call is asked of the leader of ``meta``, and follows the leadership.

    A refusal changed nothing. OutcomeUnknown: it was asked for and no answer says what became of it; see ``describe``.
    With ``dry_run`` everything is checked as if it were to be done, and nothing is.
    """

    async def create(
        self,
        name: str,
        members: Sequence[str] | None = None,
        *,
        dry_run: bool = False,
        timeout_ms: float | None = None,
    ) -> GroupInfo:
        """Makes a group. ``members``: the ids of its voters; None: the voters of ``meta``.

        It returns once the directory has the group. Its members elect a leader then, and the first calls of its log
        wait for that. Raises GroupExists, UnknownMember, ChangeRefused, InvalidRequest (the name), OutcomeUnknown.
        """
        check_group(name)
        check_names("members", members or ())
        check_flag("dry_run", dry_run)
        request = admin_pb2.CreateGroupRequest(name=name, members=members or (), dry_run=dry_run)
        attempts = self.attempts(timeout_ms)
        try:
            answer = await self.ask(lambda admin: admin.CreateGroup, request, attempts)
        except GroupExists as refusal:
            if not attempts.left_doubt:
                raise
            text = "an earlier attempt of this call, whose answer was lost, may have made it"
            raise OutcomeUnknown(f"{refusal}; {text}: describe the group") from refusal
        return GroupInfo.from_wire(answer.group)

    async def list(self, *, timeout_ms: float | None = None) -> list[GroupInfo]:
        """All groups of the cluster but ``meta``, by name."""
        request = admin_pb2.ListGroupsRequest()
        answer = await self.ask(lambda admin: admin.ListGroups, request, self.attempts(timeout_ms))
        return [GroupInfo.from_wire(each) for each in answer.groups]

    async def describe(self, name: str, *, timeout_ms: float | None = None) -> GroupInfo:
        """What the directory has of one group. Raises UnknownGroup; Unsupported for ``meta``, which is not in it."""
        check_group(name)
        if name == META_GROUP:
            text = f"the group {META_GROUP!r} holds the directory and is not in it: ask for the status of its log"
            raise error(Code.UNSUPPORTED, text)
        groups = await self.list(timeout_ms=timeout_ms)
        found = next((each for each in groups if each.name == name), None)
        if found is None:
            raise error(Code.UNKNOWN_GROUP, f"the cluster has no group {name!r}")
        return found

    async def delete(
        self,
        name: str,
        *,
        id: int = 0,  # noqa: A002  # what the directory calls it
        force: bool = False,
        dry_run: bool = False,
        timeout_ms: float | None = None,
    ) -> GroupInfo:
        """Removes a group and all its records from every node, for good. Returns what it was.

        ``id``: only the group of that id, as ``describe`` tells it; 0: whichever has the name by now. With an id, a
        call is made again if its answer was lost; if the group is gone by then, nothing tells its founders. Without one
        it is not: by then the name may belong to another group. ``force``: for a group without a quorum; its log cannot
        be sealed first. Its members may acknowledge records until they hear of the removal, and those are gone.

        Raises UnknownGroup, ChangeRefused (the id is another one), Unsupported (``default`` and ``meta`` stay),
        OutcomeUnknown.
        """
        check_group(name)
        check_flag("dry_run", dry_run)
        check_flag("force", force)
        check_amount("id", id)
        request = admin_pb2.DeleteGroupRequest(name=name, dry_run=dry_run, id=id, force=force)
        attempts = self.attempts(timeout_ms, repeatable=dry_run or id > 0)
        try:
            answer = await self.ask(lambda admin: admin.DeleteGroup, request, attempts)
        except (UnknownGroup, ChangeRefused):
            if id > 0 and attempts.left_doubt:  # an earlier attempt, with a lost answer, removed it
                return GroupInfo(name, id, ())
            raise
        return GroupInfo.from_wire(answer.group)
