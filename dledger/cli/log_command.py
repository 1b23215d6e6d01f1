"""``dledger log``: one node's files, read where they lie. Never writes, also beside a live node."""

from __future__ import annotations

from pathlib import Path

import click

from dledger.cli.options import group_option, option, output_option
from dledger.cli.output import print_fields, print_json
from dledger.cli.runtime import EXIT_BAD, EXIT_OK
from dledger.cli.units import RECORD_INDEX


@click.group()
def log() -> None:
    """Looks into one node's data directory; read-only."""


@log.command()
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@group_option
@output_option("text", "json")
def verify(directory: Path, group: str, output: str) -> int:
    """Checks every frame's checksums, chain, positions and indexes.

    Exits with 0 when all is well (a torn tail, which a crash may leave, is), 1 when stored bytes are not what was
    written, 2 when DIR holds no log.
    """
    from dledger.log.verify import verify as verify_log  # noqa: PLC0415  # not for --help

    report = verify_log(directory, group)
    if output == "json":
        print_json(report.as_dict())
    else:
        fields = report.as_dict()
        bad = fields.pop("bad") or {}
        print_fields("ok" if fields.pop("ok") else "bad", {**fields, **bad})
    return EXIT_OK if report.ok else EXIT_BAD


@log.command()
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@option("--from", "start", env="FROM", metavar="INDEX", default=0, type=RECORD_INDEX, help="The first record.")
@option(
    "--records",
    env="RECORDS",
    is_flag=True,
    help="The records themselves, a newline behind each, as append takes them.",
)
@group_option
def dump(directory: Path, start: int, group: str, *, records: bool) -> None:
    """Prints a line for every frame: position, term, chain, kind, records, producer, time, size.

    Committed or not: a node's files do not tell them apart for certain.
    """
    from dledger.log import verify  # noqa: PLC0415  # not for --help

    lines = verify.dump_records(directory, start, group) if records else verify.dump(directory, start, group)
    for line in lines:
        click.echo(line)
