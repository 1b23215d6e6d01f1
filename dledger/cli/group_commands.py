"""``dledger group``: which logs a cluster has."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from dledger.cli.asking import confirm, is_at_terminal
from dledger.cli.options import GroupName, Target, cluster_options, option, output_option
from dledger.cli.output import print_fields, print_json, table
from dledger.cli.runtime import run
from dledger.cli.waiting import Waiting
from dledger.common.errors import DLedgerError, quoted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dledger.client import Cluster, ClusterStatus, GroupInfo, NodeStatus

NODES_SHOWN = ("id", "role", "votes", "term", "first", "commit", "last", "address")

dry_run_option = option("--dry-run", env="DRY_RUN", is_flag=True, help="Check everything, change nothing.")


@click.group()
def group() -> None:
    """Makes, shows and deletes groups. Each group is a log of its own, with members and a leader of its own.

    \b
    dledger group create orders                       on the nodes of the group meta
    dledger group create orders --members n0,n1,n2    on these nodes
    seq 10 | dledger append --group orders            every command for a log takes --group
    dledger admin transfer --to n2 --group orders     … and so does every one for its members
    dledger group list                                all of them
    dledger group describe orders                     who leads it, how far its members are
    dledger group delete orders                       with all its records, for good

    The groups default and meta are there from the start and stay. meta holds the directory of groups; its members are
    the nodes of the cluster.
    """


@group.command()
@click.argument("name", type=GroupName())
@option("--members", env="MEMBERS", metavar="ID,…", help="Its voters; by default those of meta.")
@dry_run_option
@output_option("text", "json")
@cluster_options
def create(*, target: Target, name: str, members: str | None, dry_run: bool, output: str) -> None:
    """Makes a group. Its members elect a leader then, which takes a moment."""
    wanted = None if members is None else parse_members(members)
    made = run(_create(target, name, wanted, dry_run=dry_run))
    _report("created", made, {"dry_run": dry_run}, output)


def parse_members(text: str) -> list[str]:
    """``n0,n1,n2``. Raises click's usage errors."""
    ids = [part.strip() for part in text.split(",")]
    if not all(ids) or len(set(ids)) < len(ids):
        raise click.BadParameter(f"{quoted(text)} does not list nodes: write their ids, once each, as in n0,n1,n2.")
    return ids


async def _create(target: Target, name: str, members: list[str] | None, *, dry_run: bool) -> GroupInfo:
    async with _telling(target) as cluster:
        return await cluster.groups.create(name, members, dry_run=dry_run)


@group.command(name="list")
@output_option("table", "json")
@cluster_options
def list_groups(*, target: Target, output: str) -> None:
    """Shows all groups but meta, and their members. describe tells who leads, and how far they are."""
    groups = run(_list(target))
    if output == "json":
        print_json({"groups": [each.as_dict() for each in groups]})
        return
    click.echo(table(("name", "id", "voters", "learners", "state"), map(_group_row, groups)))


def _group_row(info: GroupInfo) -> list[Any]:
    state = "being deleted" if info.is_being_deleted else "-"
    return [info.name, info.id, ",".join(info.voters), ",".join(info.learners) or "-", state]


async def _list(target: Target) -> list[GroupInfo]:
    async with _telling(target) as cluster:
        return await cluster.groups.list()


@group.command()
@click.argument("name", type=GroupName())
@output_option("text", "json")
@cluster_options
def describe(*, target: Target, name: str, output: str) -> None:
    """Shows a group: what the directory has of it, who leads it, and how far its members are."""
    described = run(_describe(target, name))
    status = described.status
    if output == "json":
        told = status.as_dict() if status is not None else None
        print_json({**described.info.as_dict(), "status": told, "problem": described.problem or None})
        return
    fields: dict[str, Any] = {"id": described.info.id, "founders": _founders(described.info)}
    fields |= {"leader": status and status.leader, "term": status and status.term, "records": described.records}
    if described.problem:
        fields["problem"] = described.problem
    print_fields(name, fields)
    if status is not None:
        click.echo("\n" + table(NODES_SHOWN, [_row(node) for node in status.nodes]))


@group.command()
@click.argument("name", type=GroupName())
@option("--yes", env="YES", is_flag=True, help="Do not ask. Needed without a terminal.")
@option(
    "--force",
    env="FORCE",
    is_flag=True,
    help="For a group without a quorum: do not wait until its log is sealed. Records that its members acknowledge "
    "before they hear of the removal are lost too.",
)
@dry_run_option
@output_option("text", "json")
@cluster_options
def delete(*, target: Target, name: str, yes: bool, force: bool, dry_run: bool, output: str) -> None:
    """Deletes a group and all its records on every node, for good. The name may be used again, for another group.

    Asks before on a terminal, and says how many records are lost. The group's log is sealed first, for which a majority
    of its voters must be there. When the command has ended well, the group acknowledges nothing any more, and its name
    is free.
    """
    found = run(_look(target, name))
    if not dry_run:
        if not yes:
            _confirm(name, found)
        run(_delete(target, found.info, force=force))
    _report("deleted", found.info, {"records": found.records, "dry_run": dry_run}, output)


def _confirm(name: str, found: _Described) -> None:
    """Raises click.Abort unless somebody at a terminal says yes."""
    lost = f"all its records (how many is not known: {found.problem})"
    if found.records is not None:
        lost = f"its {found.records:,} record{'s' if found.records != 1 else ''}"
    sentence = f"The group {name} and {lost} will be gone from {found.places}, for good."
    if not is_at_terminal():
        raise click.UsageError(f"{sentence} Nothing was deleted: there is no terminal to ask at; give --yes.")
    confirm(sentence, "Delete it?")


async def _delete(target: Target, info: GroupInfo, *, force: bool) -> None:
    """Deletes the group that was looked at. Raises CHANGE_REFUSED if another has its name by now."""
    async with _telling(target) as cluster:
        await cluster.groups.delete(info.name, id=info.id, force=force)


class _Described(NamedTuple):
    """A group and its state; None: nobody told, and ``problem`` says why."""

    info: GroupInfo
    status: ClusterStatus | None
    problem: str

    @property
    def records(self) -> int | None:
        """How many are committed, as far as its members that answer know."""
        counts = [each.commit_index + 1 - each.first_index for each in _readable(self.status)]
        return max(counts, default=None)

    @property
    def places(self) -> str:
        """The ids of its members by now, else of its founders."""
        nodes = self.status.nodes if self.status is not None else ()
        return ",".join(node.id for node in nodes) or _founders(self.info)


def _readable(status: ClusterStatus | None) -> list[NodeStatus]:
    nodes = status.nodes if status is not None else ()
    return [node for node in nodes if node.reachable and node.role != "recovering"]


async def _describe(target: Target, name: str) -> _Described:
    async with _telling(target) as cluster:
        return await _described(cluster, await cluster.groups.describe(name))


async def _look(target: Target, name: str) -> _Described:
    """The group that a deletion would take; raises the error that would refuse the deletion."""
    async with _telling(target) as cluster:
        return await _described(cluster, await cluster.groups.delete(name, dry_run=True))


async def _described(cluster: Cluster, info: GroupInfo) -> _Described:
    try:
        status = await cluster.log(info.name).status()
    except DLedgerError as refusal:
        return _Described(info, None, str(refusal))
    problem = "" if _readable(status) else "no member answers"
    return _Described(info, status, problem)


@asynccontextmanager
async def _telling(target: Target) -> AsyncIterator[Cluster]:
    """The cluster at ``target``; the waits of its calls are shown."""
    with Waiting() as waiting:
        async with target.connect_cluster(on_wait=waiting.tell) as cluster:
            yield cluster


def _report(word: str, info: GroupInfo, fields: dict[str, Any], output: str) -> None:
    if output == "json":
        print_json({**info.as_dict(), **fields})
        return
    dry_run = fields.pop("dry_run")
    told = {"name": info.name, "id": info.id, "founders": _founders(info), **fields}
    print_fields("dry-run" if dry_run else word, told)


def _founders(info: GroupInfo) -> str:
    return ",".join(each.id for each in info.founders)


def _row(node: NodeStatus) -> list[object]:
    votes = ("doubt" if node.counts is False else "yes") if node.voter else "no"
    if not node.reachable:
        return [node.id, "unreachable", votes, *["-"] * 4, node.address or node.peer_address]
    indexes = (node.term, node.first_index, node.commit_index, node.last_index)
    return [node.id, node.role, votes, *indexes, node.address]
