"""``dledger kv watch``: what changes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from dledger.cli.kv_format import pair_fields, shown, typed
from dledger.cli.options import Target, cluster_options, option, output_option
from dledger.cli.output import print_json
from dledger.cli.runtime import run

if TYPE_CHECKING:
    from dledger.client.store import WatchEvent

MAX_REVISION = (1 << 63) - 1


@click.command(short_help="Prints changes as they come.")
@click.argument("key")
@option("--prefix", env="PREFIX", is_flag=True, help="All keys that begin with KEY.")
@option(
    "--rev",
    "revision",
    env="REV",
    type=click.IntRange(1, MAX_REVISION),
    help="From the change of this revision on; by default from now on.",
)
@output_option("lines", "json")
@cluster_options
def watch(*, target: Target, key: str, prefix: bool, revision: int | None, output: str) -> None:
    """Prints every change of a key, or with --prefix of all that begin so, until Ctrl-C.

    Goes on by itself when a node is gone, without a gap or a double. A line has the revision, put or delete, the key,
    and the value of a put, with tabs between them.
    """
    run(_watch(target, typed(key), revision or 0, output, is_prefix=prefix))


async def _watch(target: Target, key: bytes, revision: int, output: str, *, is_prefix: bool) -> None:
    async with target.connect_cluster() as cluster:
        store = cluster.store()
        watch = (
            store.watch(prefix=key, start_revision=revision) if is_prefix else store.watch(key, start_revision=revision)
        )
        async for batch in watch:
            for event in batch:
                _print(event, output)
            sys.stdout.flush()


def _print(event: WatchEvent, output: str) -> None:
    kind = "delete" if event.is_delete else "put"
    if output == "json":
        fields = pair_fields(event.pair)
        print_json({"revision": event.revision, "type": kind} | ({"key": fields["key"]} if event.is_delete else fields))
        return
    parts = [str(event.revision), kind, shown(event.key), *([] if event.is_delete else [_whole(event.value)])]
    click.echo("\t".join(parts))


def _whole(value: bytes) -> str:
    text = value.decode(errors="backslashreplace")
    return text if text.isprintable() else repr(text)[1:-1]
