"""``dledger kv backup`` and ``restore``: a copy of the store in a file, and its keys in another store."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from dledger.cli.options import Target, cluster_options, output_option
from dledger.cli.output import Progress, print_fields, print_json
from dledger.cli.runtime import run
from dledger.common.errors import Code, ConfigError, DLedgerError, error

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

    from dledger.client.store import KeyValue, Store
    from dledger.store.machine import Store as StoreMachine

SYSTEM_PREFIX = b"/dledger/"
TXN_KEYS = 128
"""As many operations as a transaction takes."""
TXN_BYTES = 1 << 19
TXNS_AT_ONCE = 16
PAIR_COST_BYTES = 64


@click.command(short_help="Writes a copy of the store into a file.")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@output_option("text", "json")
@cluster_options
def backup(*, target: Target, file: Path, output: str) -> None:
    """Writes a copy of the whole store, as of one revision, into FILE, which must not exist.

    FILE is there only when it is whole: the copy has a digest, which is checked.
    """
    if file.exists():
        raise ConfigError(f"{file} exists: give a file that does not")
    size = run(_backup(target, file))
    if output == "json":
        print_json({"file": str(file), "size_bytes": size})
    else:
        print_fields("backup", {"file": file, "size_bytes": size})


async def _backup(target: Target, file: Path) -> int:
    size, part = 0, file.with_name(file.name + ".part")
    try:
        async with target.connect_cluster() as cluster:
            with part.open("wb") as out, Progress("copying") as progress:
                async for blob in cluster.store().backup():
                    out.write(blob)
                    size += len(blob)
                    progress.update(size, f"{size:,} bytes")
                out.flush()
                os.fsync(out.fileno())
        part.rename(file)
    finally:
        part.unlink(missing_ok=True)
    return size


@click.command(short_help="Puts the keys of a copy into an empty store.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@output_option("text", "json")
@cluster_options
def restore(*, target: Target, file: Path, output: str) -> None:
    """Puts all keys of a copy, as of its revision, and their leases into a store without keys.

    Keys under /dledger/ are the system's own: those of the copy are left out, and those of the cluster stay. History is
    not restored: the revisions are the cluster's. Leases have their ids, and their full time again.

    The keys come by many transactions, and others may see some of them before all are there. If the command fails,
    delete the keys that came, and begin anew.
    """
    done = run(_restore(target, str(file), file.read_bytes()))
    if output == "json":
        print_json(done._asdict())
    else:
        print_fields("restored", done._asdict())


class Restored(NamedTuple):
    keys: int
    leases: int
    revision: int
    """Of the store, with all of them."""


async def _restore(target: Target, name: str, data: bytes) -> Restored:
    copy = await read_copy(name, data)
    pairs = [each for each in copy_pairs(copy) if not each.key.startswith(SYSTEM_PREFIX)]
    async with target.connect_cluster() as cluster:
        store = cluster.store()
        if await store.count() > await store.count(prefix=SYSTEM_PREFIX):
            raise error(Code.STORE_NOT_EMPTY, "the store has keys already: restore into an empty one")
        named = {each.lease for each in pairs if each.lease}
        for lease in copy.leases:
            if lease.id in named or not lease.keys:
                await store.grant_lease(lease.ttl_s, id=lease.id)
                named.add(lease.id)
        await _put_all(store, pairs)
        return Restored(len(pairs), len(named), (await store.status()).revision)


async def _put_all(store: Store, pairs: list[KeyValue]) -> None:
    room = asyncio.Semaphore(TXNS_AT_ONCE)
    done = 0
    with Progress("restoring", len(pairs)) as progress:

        async def put(part: list[KeyValue]) -> None:
            nonlocal done
            async with room:
                await _put_new(store, part)
            done += len(part)
            progress.update(done)

        async with asyncio.TaskGroup() as tasks:
            for part in parts_of(pairs):
                tasks.create_task(put(part))


async def _put_new(store: Store, pairs: list[KeyValue]) -> None:
    from dledger.client.store import Compare, Op  # noqa: PLC0415  # not for --help

    absent = [Compare.absent(each.key) for each in pairs]
    done = await store.txn(absent, [Op.put(each.key, each.value, lease=each.lease) for each in pairs])
    if not done.succeeded:
        raise error(Code.STORE_NOT_EMPTY, "somebody else puts keys into the store meanwhile: restore when nobody does")


def parts_of(pairs: Iterable[KeyValue]) -> Iterator[list[KeyValue]]:
    """In pieces that fit a transaction."""
    part: list[KeyValue] = []
    size = 0
    for each in pairs:
        cost = 2 * len(each.key) + len(each.value) + PAIR_COST_BYTES
        if part and (len(part) == TXN_KEYS or size + cost > TXN_BYTES):
            yield part
            part, size = [], 0
        part.append(each)
        size += cost
    if part:
        yield part


async def read_copy(name: str, data: bytes) -> StoreMachine:
    """The store that a copy was made of. Raises CONFIG_ERROR for a file that is none, or is not whole."""
    from dledger.server.etcd.backup import BadBackup, backup_parts  # noqa: PLC0415  # as above
    from dledger.store.machine import Store as StoreMachine  # noqa: PLC0415

    machine = StoreMachine()
    try:
        await machine.restore(_one_by_one(backup_parts(data)))
    except BadBackup as why:
        raise ConfigError(f"{name} is no copy of a store: {why}") from why
    except DLedgerError as why:
        raise ConfigError(f"{name} cannot be read: {why}") from why
    return machine


async def _one_by_one(parts: Iterable[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def copy_pairs(copy: StoreMachine) -> list[KeyValue]:
    from dledger.client.store import KeyValue  # noqa: PLC0415  # as above
    from dledger.etcdpb import rpc_pb2 as rpc  # noqa: PLC0415

    everything = rpc.RangeRequest(key=b"\0", range_end=b"\0")
    return [KeyValue.from_wire(each) for each in copy.range(everything).kvs]
