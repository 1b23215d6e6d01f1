"""``dledger kv lease``: leases by hand."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from dledger.cli.kv_format import lease_text, parse_lease
from dledger.cli.options import Target, cluster_options, option, output_option
from dledger.cli.output import print_fields, print_json
from dledger.cli.runtime import run

if TYPE_CHECKING:
    from dledger.client.store import LeaseTimes

MAX_TTL_S = 9_000_000_000
KEPT_PER_TTL = 3


@click.group()
def lease() -> None:
    """Grants, keeps and revokes leases. A key that was put with --lease goes when its lease does.

    \b
    dledger kv lease grant 60                a lease of a minute; prints its id
    dledger kv put job here --lease ID
    dledger kv lease keep-alive ID           … kept for as long as this command runs
    dledger kv lease revoke ID               … gone, with its keys
    """


@lease.command(short_help="Makes a lease.")
@click.argument("ttl_s", metavar="TTL", type=click.IntRange(1, MAX_TTL_S))
@output_option("text", "json")
@cluster_options
def grant(*, target: Target, ttl_s: int, output: str) -> None:
    """Makes a lease of TTL seconds, and tells its id. It expires unless it is kept alive. The shortest is 2 seconds."""
    granted = run(_grant(target, ttl_s))
    if output == "json":
        print_json({"lease": lease_text(granted.id), "ttl_s": granted.granted_s})
    else:
        print_fields("granted", {"lease": lease_text(granted.id), "ttl_s": granted.granted_s})


async def _grant(target: Target, ttl_s: int) -> LeaseTimes:
    async with target.connect_cluster() as cluster:
        return await cluster.store().grant_lease(ttl_s)


@lease.command(name="keep-alive", short_help="Keeps a lease alive.")
@click.argument("lease_id", metavar="ID")
@option("--once", env="ONCE", is_flag=True, help="One keepalive, instead of one after the other until Ctrl-C.")
@output_option("text", "json")
@cluster_options
def keep_alive(*, target: Target, lease_id: str, once: bool, output: str) -> None:
    """Gives a lease its full time again and again, until Ctrl-C. Ends with 5 when there is no such lease any more."""
    run(_keep_alive(target, parse_lease(lease_id), output, once=once))


async def _keep_alive(target: Target, lease_id: int, output: str, *, once: bool) -> None:
    async with target.connect_cluster() as cluster:
        while True:
            ttl_s = await cluster.store().keep_lease_alive(lease_id)
            if output == "json":
                print_json({"lease": lease_text(lease_id), "ttl_s": ttl_s})
            else:
                print_fields("kept", {"lease": lease_text(lease_id), "ttl_s": ttl_s})
            sys.stdout.flush()
            if once:
                return
            await asyncio.sleep(ttl_s / KEPT_PER_TTL)


@lease.command(short_help="Ends a lease, and deletes its keys.")
@click.argument("lease_id", metavar="ID")
@output_option("text", "json")
@cluster_options
def revoke(*, target: Target, lease_id: str, output: str) -> None:
    """Ends a lease. Its keys are deleted at one revision."""
    wanted = parse_lease(lease_id)
    run(_revoke(target, wanted))
    if output == "json":
        print_json({"lease": lease_text(wanted)})
    else:
        print_fields("revoked", {"lease": lease_text(wanted)})


async def _revoke(target: Target, lease_id: int) -> None:
    async with target.connect_cluster() as cluster:
        await cluster.store().revoke_lease(lease_id)


@lease.command(name="list", short_help="Lists all leases.")
@output_option("lines", "json")
@cluster_options
def list_leases(*, target: Target, output: str) -> None:
    """Lists the ids of all leases."""
    found = [lease_text(each) for each in run(_list(target))]
    if output == "json":
        print_json({"leases": found})
        return
    for each in found:
        click.echo(each)


async def _list(target: Target) -> list[int]:
    async with target.connect_cluster() as cluster:
        return await cluster.store().leases()
