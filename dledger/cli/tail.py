"""``dledger tail``: the end of the log, and what comes."""

from __future__ import annotations

import click

from dledger.cli.options import Target, client_options, option, output_option
from dledger.cli.ranges import Kind, Place, Range, parse_place
from dledger.cli.reading import Reading
from dledger.cli.runtime import run


@click.command(short_help="Prints the last records, and those that come.")
@option("-f", "--follow", env="FOLLOW", is_flag=True, help="Go on with what is appended from now on.")
@option("--from", "start", env="FROM", metavar="INDEX", help="Where to begin: 7, -10, +5, @TIME.")
@option("-n", "--lines", env="LINES", default=10, type=click.IntRange(0), help="How many from the end, without --from.")
@option("--node", env="NODE", metavar="ID", help="Read this node's own copy, as far as it knows it to be committed.")
@output_option("lines", "raw", "json")
@client_options
def tail(*, target: Target, follow: bool, start: str | None, lines: int, node: str | None, output: str) -> None:
    """Prints the last records; with -f, also those that come, until Ctrl-C.

    \b
    dledger tail -f
    dledger tail -f --from 0 -o json
    """
    place = parse_place(start) if start is not None else Place(Kind.BEFORE_END, lines)
    run(_tail(target, place, node, output, follow=follow))


async def _tail(target: Target, place: Place, node: str | None, output: str, *, follow: bool) -> None:
    async with target.connect() as log:
        reading = Reading(log, node)
        start, end = await reading.span(Range(place, None))
        if follow or start < end:
            await reading.copy(start, None if follow else end, output, follow=follow)
