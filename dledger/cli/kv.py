"""``dledger kv``: the key-value store. This module: single keys, and the state of the store."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from dledger.cli import kv_backup, kv_lease, kv_lock, kv_txn, kv_watch
from dledger.cli.kv_format import PAIR_HEAD, from_stdin, pair_fields, pair_row, parse_lease, typed, write_raw
from dledger.cli.options import Target, cluster_options, option, output_option
from dledger.cli.output import print_fields, print_json, table
from dledger.cli.runtime import EXIT_BAD, EXIT_OK, complain, run
from dledger.common.errors import quoted

if TYPE_CHECKING:
    from dledger.client.store import Deleted, KeyValue, Pairs, StoreStatus

MAX_REVISION = (1 << 63) - 1

prefix_option = option("--prefix", env="PREFIX", is_flag=True, help="All keys that begin with KEY.")
revision_option = option(
    "--rev", "revision", env="REV", type=click.IntRange(1, MAX_REVISION), help="As of this revision of the store."
)


@click.group()
def kv() -> None:
    """Reads and changes the key-value store of the cluster, whose semantics are etcd's.

    \b
    dledger kv put color red                     one key; its value from stdin with -
    dledger kv get color                         … its value, byte by byte
    dledger kv get app/ --prefix -o table        all keys that begin so
    dledger kv del app/ --prefix
    dledger kv txn < change.json                 comparisons and operations, all or nothing
    dledger kv watch app/ --prefix               what changes, from now on
    dledger kv lock nightly -- ./backup.sh       one machine at a time
    dledger kv lease grant 60                    keys that go by themselves
    dledger kv backup FILE                       a copy of all, as of one revision
    dledger kv status                            revisions and sizes

    In JSON, keys and values are text, or {"base64": "…"} where they are none. See docs/store.md.
    """


@kv.command(short_help="Gives a key its value.")
@click.argument("key")
@click.argument("value", metavar="[VALUE | -]", required=False)
@option("--lease", env="LEASE", metavar="ID", help="The key goes when this lease does.")
@output_option("text", "json")
@cluster_options
def put(*, target: Target, key: str, value: str | None, lease: str | None, output: str) -> None:
    """Gives a key its value: the argument, or with - what stdin has. Tells the revision of the change.

    Without --lease the key stays until it is deleted, also if it had a lease before.
    """
    if value is None and sys.stdin.isatty():
        raise click.UsageError("Give the value too, or - to take it from stdin.")
    wanted = parse_lease(lease) if lease is not None else 0
    revision = run(_put(target, typed(key), value, wanted))
    if output == "json":
        print_json({"revision": revision})
    else:
        print_fields("put", {"revision": revision})


async def _put(target: Target, key: bytes, value: str | None, lease: int) -> int:
    data = await from_stdin() if value in (None, "-") else typed(value or "")
    async with target.connect_cluster() as cluster:
        return await cluster.store().put(key, data, lease=lease)


@kv.command(short_help="Prints keys and their values.")
@click.argument("key")
@prefix_option
@revision_option
@option("--count", env="COUNT", is_flag=True, help="How many keys there are, instead of the keys.")
@output_option("raw", "json", "table")
@cluster_options
def get(*, target: Target, key: str, prefix: bool, revision: int | None, count: bool, output: str) -> int:
    """Prints the value of a key, byte by byte; with -o json or table also its revisions. Ends with 1 if there is none.

    With --prefix and -o raw: a line for each key, the key and its value with a tab between. JSON has a line for each
    key.
    """
    if count:
        _print_count(run(_count(target, typed(key), revision or 0, is_prefix=prefix)), output)
        return EXIT_OK
    found = run(_get(target, typed(key), revision or 0, is_prefix=prefix))
    if not found and not prefix:
        complain(f"there is no key {quoted(key)}" + (f" at revision {revision}" if revision else ""))
        return EXIT_BAD
    _print_pairs(found, output, is_prefix=prefix)
    return EXIT_OK


def _print_count(count: int, output: str) -> None:
    if output == "json":
        print_json({"count": count})
    else:
        click.echo(count)


def _print_pairs(found: list[KeyValue], output: str, *, is_prefix: bool) -> None:
    if output == "table":
        click.echo(table(PAIR_HEAD, map(pair_row, found)))
    elif output == "json":
        for each in found:
            print_json(pair_fields(each))
    elif is_prefix:
        for each in found:
            sys.stdout.buffer.write(b"%b\t%b\n" % (each.key, each.value))
    else:
        write_raw([found[0].value])


async def _get(target: Target, key: bytes, revision: int, *, is_prefix: bool) -> list[KeyValue]:
    async with target.connect_cluster() as cluster:
        store = cluster.store()
        if not is_prefix:
            found = await store.get(key, revision)
            return [] if found is None else [found]
        pairs: Pairs = await store.range(prefix=key, revision=revision)
        return list(pairs)


async def _count(target: Target, key: bytes, revision: int, *, is_prefix: bool) -> int:
    async with target.connect_cluster() as cluster:
        store = cluster.store()
        if not is_prefix:
            return int(await store.get(key, revision) is not None)
        return await store.count(prefix=key, revision=revision)


@kv.command(name="del", short_help="Deletes keys.")
@click.argument("key")
@prefix_option
@output_option("text", "json")
@cluster_options
def delete(*, target: Target, key: str, prefix: bool, output: str) -> None:
    """Deletes a key, or with --prefix all that begin so, at one revision. Tells how many there were."""
    deleted = run(_delete(target, typed(key), is_prefix=prefix))
    if output == "json":
        print_json(deleted._asdict())
    else:
        print_fields("deleted", {"keys": deleted.deleted, "revision": deleted.revision})


async def _delete(target: Target, key: bytes, *, is_prefix: bool) -> Deleted:
    async with target.connect_cluster() as cluster:
        return await (cluster.store().delete(prefix=key) if is_prefix else cluster.store().delete(key))


@kv.command(short_help="Forgets the history before a revision.")
@click.argument("revision", metavar="REV", type=click.IntRange(1, MAX_REVISION))
@output_option("text", "json")
@cluster_options
def compact(*, target: Target, revision: int, output: str) -> None:
    """Forgets what was overwritten or deleted before a revision: reads of the past and watches go back no further."""
    run(_compact(target, revision))
    if output == "json":
        print_json({"compact_revision": revision})
    else:
        print_fields("compacted", {"revision": revision})


async def _compact(target: Target, revision: int) -> None:
    async with target.connect_cluster() as cluster:
        await cluster.store().compact(revision)


@kv.command(short_help="Shows revisions, sizes and the hash of the store.")
@output_option("text", "json")
@cluster_options
def status(*, target: Target, output: str) -> None:
    """Shows the store as one node has it. The hash is equal on nodes that are compacted alike."""
    told = run(_status(target))
    if output == "json":
        print_json(told._asdict())
    else:
        print_fields("store", {**told._asdict(), "hash": f"{told.hash:08x}"})


async def _status(target: Target) -> StoreStatus:
    async with target.connect_cluster() as cluster:
        return await cluster.store().status()


for command in (
    kv_txn.txn,
    kv_watch.watch,
    kv_lease.lease,
    kv_lock.lock,
    kv_lock.elect,
    kv_backup.backup,
    kv_backup.restore,
):
    kv.add_command(command)
