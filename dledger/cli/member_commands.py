"""``dledger admin add | promote | remove | readmit``: who belongs to the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dledger.cli.options import Command, Target, client_options, option, output_option
from dledger.cli.output import print_fields, print_json
from dledger.cli.runtime import run
from dledger.cli.waiting import Waiting, once_it_passes, telling
from dledger.common.config_file import parse_peers
from dledger.common.types import DEFAULT_GROUP

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dledger.client import Log, MembershipChange

dry_run_option = option("--dry-run", env="DRY_RUN", is_flag=True, help="Check everything, change nothing.")


def change_options(command: Command) -> Command:
    """What every change of the members takes."""
    return dry_run_option(output_option("text", "json")(client_options(command)))


@click.command()
@click.argument("node", metavar="ID=HOST:PORT")
@change_options
def add(*, target: Target, node: str, dry_run: bool, output: str) -> None:
    """Adds a node as a learner: it replicates and does not vote. HOST:PORT is its port for nodes.

    \b
    dledger admin add n5=10.0.0.5:20911
    dledger serve --id n5 --address 10.0.0.5:20911 --join ENDPOINTS --data DIR      there, before or after
    dledger admin promote n5                                                        or leave it: a read replica
    """
    peers = parse_peers(node)
    if len(peers) != 1:
        raise click.BadParameter(f"{node!r} is not one node: write ID=HOST:PORT.")
    [(node_id, address)] = peers.items()
    change = run(_asked(target, lambda log, _: log.admin.add_learner(node_id, address, dry_run=dry_run)))
    report("added", node_id, change, dry_run=dry_run, output=output)
    if not dry_run and node_id in change.learners:
        say(f"{node_id} replicates as soon as it runs, and does not vote. If it does not run yet:")
        say(f"  dledger serve --id {node_id} --address {address} --join {target.endpoints} --data DIR")
        say(f"Once it has caught up it may vote:  {_promotion(target, node_id)}")


@click.command()
@click.argument("node_id", metavar="ID")
@change_options
def promote(*, target: Target, node_id: str, dry_run: bool, output: str) -> None:
    """Makes a learner a voter. Waits until it has caught up, for --timeout at most."""

    async def ask(log: Log, waiting: Waiting) -> MembershipChange:
        if dry_run:
            return await log.admin.promote(node_id, dry_run=True)
        return await _promote(log, node_id, target, waiting)

    change = run(_asked(target, ask))
    report("promoted", node_id, change, dry_run=dry_run, output=output)


@click.command()
@click.argument("node_id", metavar="ID")
@change_options
def remove(*, target: Target, node_id: str, dry_run: bool, output: str) -> None:
    """Removes a node, dead or alive. A leader hands the leadership over first.

    Refused when a majority of the voters that remain could not be relied on; one that merely lags is waited for. The
    node's process goes on running and disturbs nobody: stop it. To have it back, add it again.
    """

    async def ask(log: Log, waiting: Waiting) -> MembershipChange:
        if dry_run:
            return await log.admin.remove(node_id, dry_run=True)
        return await once_it_passes(
            lambda left_ms: log.admin.remove(node_id, timeout_ms=left_ms), target.timeout_ms, waiting
        )

    change = run(_asked(target, ask))
    report("removed", node_id, change, dry_run=dry_run, output=output)


@click.command(short_help="Takes a node back whose disk is another.")
@click.argument("node_id", metavar="ID")
@option("--as-learner", env="AS_LEARNER", is_flag=True, help="Leave it a learner: do not promote it again.")
@change_options
def readmit(*, target: Target, node_id: str, as_learner: bool, dry_run: bool, output: str) -> None:
    """Takes a node back whose disk was emptied, replaced, or put back to an older state.

    Such a node does not vote, as it may have voted already, or acknowledged what it lacks now. Each step waits for
    --timeout at most.

    \b
    dledger serve --id n2 --address 10.0.0.3:20911 --join ENDPOINTS --data DIR      its --peers may be outdated
    dledger admin readmit n2      it is a learner with the disk it has now, catches up, and votes again if it did
    """

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
        say(f"{node_id} is a learner with the disk it has now")
        if as_learner or not was_voter:
            say(f"It does not vote; to change that:  {_promotion(target, node_id)}")
            return change
        change = await _promote(log, node_id, target, waiting)
        say(f"{node_id} has caught up and votes again")
        return change

    change = run(_asked(target, ask))
    report("readmitted", node_id, change, dry_run=dry_run, output=output)


def report(word: str, node_id: str, change: MembershipChange, *, dry_run: bool, output: str) -> None:
    """The members after the change, as data."""
    changed = not dry_run and (change.position > 0 or change.may_be_earlier)
    if output == "json":
        members = [{"id": each.id, "peer_address": each.peer_address, "voter": each.voter} for each in change.members]
        fields: dict[str, Any] = {"id": node_id, "changed": changed, "dry_run": dry_run, "position": change.position}
        print_json(fields | {"members": members})
        return
    told = {"id": node_id, "voters": ",".join(change.voters), "learners": ",".join(change.learners) or None}
    print_fields("dry-run" if dry_run else word if changed else "unchanged", told)


def say(sentence: str) -> None:
    """For people, on stderr."""
    click.echo(sentence, err=True)


def _promotion(target: Target, node_id: str) -> str:
    """The command line that promotes it."""
    group = f" --group {target.group}" if target.group != DEFAULT_GROUP else ""
    return f"dledger admin promote {node_id}{group}"


async def _promote(log: Log, node_id: str, target: Target, waiting: Waiting) -> MembershipChange:
    return await once_it_passes(
        lambda left_ms: log.admin.promote(node_id, timeout_ms=left_ms), target.timeout_ms, waiting
    )


async def _asked(target: Target, ask: Callable[[Log, Waiting], Awaitable[MembershipChange]]) -> MembershipChange:
    async with telling(target) as (log, waiting):
        return await ask(log, waiting)
