"""``dledger admin``: an operator's commands on a running cluster. This module: the leadership."""

from __future__ import annotations

import re

import click

from dledger.cli import member_commands, retention_commands
from dledger.cli.options import Target, option
from dledger.cli.output import print_fields, print_json
from dledger.cli.runtime import run
from dledger.cli.units import number_up_to
from dledger.cli.waiting import telling
from dledger.common.errors import quoted
from dledger.common.types import DEFAULT_GROUP, META_GROUP

HIGHEST_PRIORITY = (1 << 32) - 1
_PREFERENCE = re.compile(r"([A-Za-z0-9_.-]+)=(\d+)", re.ASCII)


@click.group()
def admin() -> None:
    """Changes a running cluster.

    \b
    dledger admin transfer --to n2                another leader
    dledger admin preferred n1=10,n2=5            who should lead
    dledger admin add n5=10.0.0.5:20911           a node more, as a learner
    dledger admin promote n5                      … which may vote once it has caught up
    dledger admin remove n0                       a node less
    dledger admin readmit n2                      a node whose disk was lost or put back
    dledger admin trim --before 1000000           old records go
    dledger admin retention --max-age 72h         … by themselves

    Each is committed when it returns. One change at a time; what would lose the quorum is refused. See docs/admin.md.
    """


@admin.command(short_help="Hands the leadership over.")
@option("--to", "node", env="TO", metavar="ID", help="The next leader; by default whoever lags the least.")
@member_commands.change_options
def transfer(*, target: Target, node: str | None, dry_run: bool, output: str) -> None:
    """Hands the leadership over, without a lost or failed append; waits until the other node leads.

    Never to a node that could not take appends at once: that does not answer, is in doubt, lags, or has a full disk.
    """
    if node == "":
        raise click.UsageError("--to names nobody: give an ID, or leave it out for whoever lags the least.")
    leader, term = run(_transfer(target, node, dry_run=dry_run))
    if output == "json":
        print_json({"leader": leader, "term": term, "dry_run": dry_run})
    else:
        print_fields("dry-run" if dry_run else "transferred", {"leader": leader, "term": term})


async def _transfer(target: Target, node: str | None, *, dry_run: bool) -> tuple[str, int]:
    async with telling(target) as (log, _):
        return await log.admin.transfer_leadership(node, dry_run=dry_run)


@admin.command()
@click.argument("priorities", metavar="[ID=PRIORITY,…]", required=False)
@option("--clear", env="CLEAR", is_flag=True, help="Forget what was said: the cluster's choice, or nobody.")
@member_commands.change_options
def preferred(*, target: Target, priorities: str | None, clear: bool, dry_run: bool, output: str) -> None:
    """Says who should lead, or shows it.

    \b
    dledger admin preferred n1=10,n2=5     n1 if it is healthy and close, else n2, else anyone
    dledger admin preferred --clear        whoever leads; of a group that was made, the cluster's choice
    dledger admin preferred                what is said now

    It replaces what was said before. The leader hands over to the node of the highest priority above its own once that
    has been healthy and close for some seconds, and backs off when that fails. Who is removed is preferred no more.
    """
    if priorities is not None and clear:
        raise click.UsageError("Give priorities or --clear, not both.")
    wanted = {} if clear else None if priorities is None else parse_priorities(priorities)
    told = run(_preferred(target, wanted, dry_run=dry_run))
    is_spread = not told and target.group not in (DEFAULT_GROUP, META_GROUP)
    if output == "json":
        print_json({"preferred": told, "spread": is_spread, "dry_run": dry_run})
        return
    print_fields("dry-run" if dry_run else "preferred", told or {"spread" if is_spread else "nobody": None})
    if is_spread:
        click.echo("The cluster prefers a leader of its own choice, so that leaders spread over the nodes.", err=True)


def parse_priorities(text: str) -> dict[str, int]:
    """``n1=10,n2=5``. Raises click's usage errors."""
    wanted: dict[str, int] = {}
    for part in text.split(","):
        found = _PREFERENCE.fullmatch(part.strip())
        priority = number_up_to(HIGHEST_PRIORITY, found[2]) if found is not None else None
        if found is None or not priority:
            text = f"write ID=PRIORITY, with a priority from 1 to {HIGHEST_PRIORITY}."
            raise click.BadParameter(f"{quoted(part)} is no preference: {text}")
        if found[1] in wanted:
            raise click.BadParameter(f"{found[1]!r} is named twice: give it one priority.")
        wanted[found[1]] = priority
    return wanted


async def _preferred(target: Target, wanted: dict[str, int] | None, *, dry_run: bool) -> dict[str, int]:
    async with telling(target) as (log, _):
        if wanted is None:
            settings = (await log.status()).settings
        else:
            settings = await log.admin.set_preferred(wanted, dry_run=dry_run)
    return {each.id: each.priority for each in settings.preferred}


for command in (
    member_commands.add,
    member_commands.promote,
    member_commands.remove,
    member_commands.readmit,
    retention_commands.trim,
    retention_commands.retention,
):
    admin.add_command(command)
