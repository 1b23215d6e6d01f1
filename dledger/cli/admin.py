"""``dledger admin``: what an operator does to a running cluster."""

from __future__ import annotations

import click

from dledger.cli.options import Target, client_options, option, output_option
from dledger.cli.output import print_fields, print_json
from dledger.cli.runtime import run


@click.group()
def admin() -> None:
    """Changes a running cluster."""


@admin.command()
@option("--to", "node", env="TO", metavar="ID", default="", help="The next leader; by default whoever lags the least.")
@output_option("text", "json")
@client_options
def transfer(*, target: Target, node: str, output: str) -> None:
    """Hands the leadership over, without a lost or failed append; waits until the other node leads."""
    leader, term = run(_transfer(target, node))
    if output == "json":
        print_json({"leader": leader, "term": term})
    else:
        print_fields("transferred", {"leader": leader, "term": term})


async def _transfer(target: Target, node: str) -> tuple[str, int]:
    async with target.connect() as log:
        return await log.admin.transfer_leadership(node or None)
