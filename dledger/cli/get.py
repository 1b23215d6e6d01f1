"""``dledger get``: records by index."""

from __future__ import annotations

import click

from dledger.cli.index_ranges import Range, parse_range
from dledger.cli.options import Target, client_options, option
from dledger.cli.reading import Reading
from dledger.cli.record_format import Render, record_options
from dledger.cli.runtime import run
from dledger.common.errors import ConfigError


@click.command(short_help="Prints records by index or time.", context_settings={"ignore_unknown_options": True})
@click.argument("ranges", metavar="RANGE", nargs=-1, required=True)
@option("--node", env="NODE", metavar="ID", help="Read this node's own copy, as far as it knows it to be committed.")
@record_options(("-f", "--format"))
@client_options
def get(*, target: Target, ranges: tuple[str, ...], node: str | None, render: Render) -> None:
    """Prints records: a line each, as raw bytes without separators, or as JSON with the value in base64.

    \b
    7          record 7                    0:100      records 0 to 99 (also 0..100)
    -10:       the last ten (also -10)     :50        the first records up to 49
    -1         the last record             @-15m      the last fifteen minutes
    +5         from the sixth on
    @2026-11-21, @2026-11-21T20:15, @1790000000000     from a time on (UTC, or milliseconds since the epoch)
    @2026-11-21T20:15..@2026-11-21T20:30               between two times

    \b
    dledger get 17 --show-index --show-time
    dledger get -f '%o %T %s\\n' 0:100                 kcat's letters; \\n, \\t and \\xHH in it

    JSON has the record as text too, where it is UTF-8.

    Reads see every append that was acknowledged before (linearizable), except with --node.
    """
    run(_get(target, parse_range(_the_only(ranges)), node, render))


def _the_only(ranges: tuple[str, ...]) -> str:
    """Raises CONFIG_ERROR for more than one, and click's error for an option that there is not."""
    unknown = next((each for each in ranges if each.startswith("--")), None)
    if unknown is not None:
        raise click.NoSuchOption(unknown, ctx=click.get_current_context())
    if len(ranges) == 1:
        return ranges[0]
    meant = ranges if len(ranges) == 2 and all(each.isdigit() for each in ranges) else ("0", "10")
    raise ConfigError(f"one range is read at a time, START:END without END itself: dledger get {':'.join(meant)}")


async def _get(target: Target, wanted: Range, node: str | None, render: Render) -> None:
    async with target.connect() as log:
        reading = Reading(log, node)
        start, end = await reading.span(wanted)
        await reading.copy(start, end, render)
