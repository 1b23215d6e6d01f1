"""``dledger tail``: the end of the log, and what comes."""

from __future__ import annotations

import click

from dledger.cli.index_ranges import Kind, Place, Range, parse_place
from dledger.cli.options import Target, client_options, option
from dledger.cli.reading import Reading
from dledger.cli.record_format import Render, record_options
from dledger.cli.runtime import run
from dledger.common.errors import ConfigError

LAST = 10


@click.command(short_help="Prints the last records, and those that come.")
@option("-f", "--follow", env="FOLLOW", is_flag=True, help="Go on with what is appended from now on.")
@option("--from", "start", env="FROM", metavar="INDEX", help="Where to begin: 7, -10, +5, @-15m, @2026-11-21T20:15.")
@option(
    "-n",
    "--lines",
    env="LINES",
    type=click.IntRange(0),
    help="How many: from the end, or from --from on.  [default: the last 10]",
)
@option("--node", env="NODE", metavar="ID", help="Read this node's own copy, as far as it knows it to be committed.")
@record_options(("--format",))
@client_options
def tail(
    *, target: Target, follow: bool, start: str | None, lines: int | None, node: str | None, render: Render
) -> None:
    """Prints the last records; with -f, also those that come, until Ctrl-C.

    \b
    dledger tail -f
    dledger tail -f --from 0 -o json
    dledger tail -f --from @-15m --show-time
    dledger tail -f --format '%o %D %s\\n'     as of get, without its -f
    """
    if start is None:
        place, most = Place(Kind.BEFORE_END, LAST if lines is None else lines), None
    else:
        place, most = parse_place(start), lines
    if follow and most is not None:
        raise ConfigError("-n ends what --from begins, and -f never ends: leave one of them out")
    run(_tail(target, place, most, node, render, follow=follow))


async def _tail(
    target: Target, place: Place, most: int | None, node: str | None, render: Render, *, follow: bool
) -> None:
    async with target.connect() as log:
        reading = Reading(log, node)
        start, end = await reading.span(Range(place, None))
        if most is not None:
            end = min(end, start + most)
        if follow or start < end:
            await reading.copy(start, None if follow else end, render, follow=follow)
