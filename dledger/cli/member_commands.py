"""``dledger admin add | promote | remove | readmit``: which nodes belong to the cluster, and to each of its groups.

The nodes of the cluster are the members of the group ``meta``. Without --group these commands are about them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dledger.cli.moving import move_off
from dledger.cli.options import Command, Target, client_options, member_options, option, output_option
from dledger.cli.output import print_fields, print_json
from dledger.cli.runtime import run
from dledger.cli.waiting import Waiting, once_it_passes, telling
from dledger.common.config_file import parse_peers
from dledger.common.errors import ChangeRefused
from dledger.common.types import META_GROUP, Member, NodeId

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dledger.client import Log, MembershipChange

dry_run_option = option("--dry-run", env="DRY_RUN", is_flag=True, help="Check everything, change nothing.")


def change_options(command: Command) -> Command:
    """The options of every change of a group."""
    return dry_run_option(output_option("text", "json")(client_options(command)))


def change_of_members_options(command: Command) -> Command:
    """The options of every change of the cluster, or of a named group."""
    return dry_run_option(output_option("text", "json")(member_options(command)))


@click.command()
@click.argument("node", metavar="ID[=HOST:PORT]")
@change_of_members_options
def add(*, target: Target, node: str, dry_run: bool, output: str) -> None:
    """Adds a node to the cluster, or one of its nodes to a group. HOST:PORT is its port for nodes.

    \b
    dledger admin add n5=10.0.0.5:20911          to the cluster: it knows the groups, and holds none yet
    dledger serve --id n5 --address 10.0.0.5:20911 --join ENDPOINTS --data DIR      there, before or after
    dledger admin add n5 --group orders          to a group, as a learner: it replicates and does not vote
    dledger admin promote n5 --group orders      or leave it: a read replica

    The directory of groups, in the group meta, is held by up to five voters. While there are fewer, a new node becomes
    one by itself as soon as it has caught up.
    """
    node_id, address = _parse_node(node, target)
    change = run(_asked(target, lambda log, _: log.admin.add_learner(node_id, address, dry_run=dry_run)))
    report("added", target, node_id, change, dry_run=dry_run, output=output)
    if dry_run or node_id not in change.learners:
        return
    if target.group == META_GROUP:
        say(f"{node_id} is known to the cluster. If it does not run yet:")
        say(f"  dledger serve --id {node_id} --address {address} --join {target.endpoints} --data DIR")
        say(f"To have it hold a group:  dledger admin add {node_id} --group default")
    else:
        say(f"{node_id} replicates {target.group}, and does not vote.")
        say(f"Once it has caught up it may vote:  {_promotion(target, node_id)}")


def _parse_node(node: str, target: Target) -> tuple[str, str]:
    """Raises click's usage errors."""
    if "=" not in node and target.group != META_GROUP and node:
        return node, ""
    peers = parse_peers(node)
    if len(peers) != 1:
        raise click.BadParameter(f"{node!r} is not one node: write ID=HOST:PORT.")
    return next(iter(peers.items()))


@click.command()
@click.argument("node_id", metavar="ID")
@change_of_members_options
def promote(*, target: Target, node_id: str, dry_run: bool, output: str) -> None:
    """Makes a learner of a group a voter. Waits at most for --timeout until it has caught up.

    Without --group: of meta, where nodes are promoted by themselves while there are fewer than five voters.
    """

    async def ask(log: Log, waiting: Waiting) -> MembershipChange:
        if dry_run:
            return await log.admin.promote(node_id, dry_run=True)
        return await _promote(log, node_id, target, waiting)

    change = run(_asked(target, ask))
    report("promoted", target, node_id, change, dry_run=dry_run, output=output)


@click.command()
@click.argument("node_id", metavar="ID")
@option("--move", env="MOVE", is_flag=True, help="Give its place in each group to another node first.")
@change_of_members_options
def remove(*, target: Target, node_id: str, move: bool, dry_run: bool, output: str) -> None:
    """Removes a node from the cluster, or from a group, dead or alive. A leader hands the leadership over first.

    The cluster keeps a node while it is a member of another group than meta. With --move each of those groups gets the
    node with the fewest groups in its place, one group after the other; it can be run again where it was interrupted.

    Refused when a majority of the voters that remain could not be relied on; one that merely lags is waited for. The
    node's process goes on running and disturbs nobody: stop it. To have it back, add it again.
    """
    if move and not target.is_cluster:
        raise click.UsageError("--move moves a node off all its groups: leave out --group.")

    async def ask(log: Log, waiting: Waiting) -> MembershipChange:
        if dry_run:
            return await _try_removal(log, node_id, move=move)
        return await once_it_passes(
            lambda left_ms: log.admin.remove(node_id, timeout_ms=left_ms), target.timeout_ms, waiting
        )

    if move:
        run(move_off(target, node_id, say, dry_run=dry_run))
    change = run(_asked(target, ask))
    report("removed", target, node_id, change, dry_run=dry_run, output=output)


async def _try_removal(log: Log, node_id: str, *, move: bool) -> MembershipChange:
    try:
        return await log.admin.remove(node_id, dry_run=True)
    except ChangeRefused as refusal:
        if not move or "groups" not in refusal.metadata:
            raise
    from dledger.client import MembershipChange  # noqa: PLC0415  # not for --help

    # The moves would have taken it out of those groups, and nothing was moved.
    nodes = (await log.status()).nodes
    left = [Member(NodeId(each.id), each.peer_address, each.voter) for each in nodes if each.id != node_id]
    return MembershipChange(tuple(left), 0)


@click.command(short_help="Takes a node back whose disk is another.")
@click.argument("node_id", metavar="ID")
@option("--as-learner", env="AS_LEARNER", is_flag=True, help="Leave it a learner: do not promote it again.")
@change_of_members_options
def readmit(*, target: Target, node_id: str, as_learner: bool, dry_run: bool, output: str) -> None:
    """Takes a node back whose disk was emptied, replaced, or put back to an older state: in every group that it is a
    member of, one after the other, or in the one that is named.

    Such a node does not vote, as it may have voted already, or acknowledged what it lacks now. Each step waits for
    --timeout at most.

    \b
    dledger serve --id n2 --address 10.0.0.3:20911 --join ENDPOINTS --data DIR      its --peers may be outdated
    dledger admin readmit n2      it is a learner with the disk it has now, catches up, and votes again if it did
    """
    for group in run(_groups_of(target, node_id)):
        within = target._replace(group=group)
        change = run(_readmit(within, node_id, as_learner=as_learner, dry_run=dry_run))
        report("readmitted", within, node_id, change, dry_run=dry_run, output=output)


async def _groups_of(target: Target, node_id: str) -> list[str]:
    """The named group; else all groups with the node as a member, ``meta`` first."""
    if not target.is_cluster:
        return [target.group]
    async with target.connect_cluster() as cluster:
        groups = await cluster.groups.list()
    return [META_GROUP, *(each.name for each in groups if node_id in each.voters + each.learners)]


async def _readmit(target: Target, node_id: str, *, as_learner: bool, dry_run: bool) -> MembershipChange:
    async def ask(log: Log, waiting: Waiting) -> MembershipChange:
        if dry_run:
            return await log.admin.readmit(node_id, dry_run=True)
        known = (await log.status()).node(node_id)
        was_voter = known is not None and known.voter
        change = await once_it_passes(
            lambda left_ms: log.admin.readmit(node_id, timeout_ms=left_ms), target.timeout_ms, waiting
        )
        if node_id in change.voters:
            return change
        say(f"{node_id} is a learner of {target.group} with the disk it has now")
        if as_learner or not was_voter:
            say(f"It does not vote; to change that:  {_promotion(target, node_id)}")
            return change
        promoted = await _promote(log, node_id, target, waiting)
        say(f"{node_id} has caught up and votes again in {target.group}")
        return promoted._replace(position=promoted.position or change.position)  # in meta it is promoted by itself

    return await _asked(target, ask)


def report(word: str, target: Target, node_id: str, change: MembershipChange, *, dry_run: bool, output: str) -> None:
    """The members after the change, as data."""
    changed = not dry_run and (change.position > 0 or change.may_be_earlier)
    if output == "json":
        members = [{"id": each.id, "peer_address": each.peer_address, "voter": each.voter} for each in change.members]
        fields: dict[str, Any] = {"id": node_id, "group": target.group, "changed": changed, "dry_run": dry_run}
        print_json(fields | {"position": change.position, "members": members})
        return
    told = {"id": node_id, "group": target.group, "voters": ",".join(change.voters)}
    told["learners"] = ",".join(change.learners) or "-"
    print_fields("dry-run" if dry_run else word if changed else "unchanged", told)


def say(sentence: str) -> None:
    """For people, on stderr."""
    click.echo(sentence, err=True)


def _promotion(target: Target, node_id: str) -> str:
    """The command line that promotes it."""
    group = f" --group {target.group}" if target.group != META_GROUP else ""
    return f"dledger admin promote {node_id}{group}"


async def _promote(log: Log, node_id: str, target: Target, waiting: Waiting) -> MembershipChange:
    return await once_it_passes(
        lambda left_ms: log.admin.promote(node_id, timeout_ms=left_ms), target.timeout_ms, waiting
    )


async def _asked(target: Target, ask: Callable[[Log, Waiting], Awaitable[MembershipChange]]) -> MembershipChange:
    async with telling(target) as (log, waiting):
        return await ask(log, waiting)
