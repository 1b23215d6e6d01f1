"""``dledger tail``: the end of the log, and what comes."""

from __future__ import annotations

import click

from dledger.cli.index_ranges import Range, parse_place
from dledger.cli.options import Target, client_options, option
from dledger.cli.reading import Reading
from dledger.cli.record_format import Render, record_options
from dledger.cli.runtime import run
from dledger.common.errors import ConfigError
from dledger.common.places import LATEST, Kind, Place

LAST = 10


@click.command(short_help="Prints the last records, and those that come.")
@option("-f", "--follow", env="FOLLOW", is_flag=True, help="Go on with what is appended from now on.")
@option("--from", "start", env="FROM", metavar="PLACE",
        help="Where to begin: 7, -10, +5, latest, @-15m, @2026-11-21T20:15.")  # fmt: skip
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
    dledger tail -f --from latest               only the records that come
    dledger tail -f --format '%o %D %s\\n'     as of get, without its -f
    """
    if start is None:
        place, most = Place(Kind.BEFORE_END, LAST if lines is None else lines), None
    else:
        place, most = parse_place(start), lines
    if follow and most is not None:
        raise ConfigError("-n ends what --from begins, and -f never ends: leave one of them out")
    if start == LATEST and not follow:
        raise ConfigError(f"{LATEST} is the end of the log, and nothing lies behind it yet: add -f, or write --from -1")
    run(_tail(target, place, most, node, render, follow=follow))


async def _tail(
    target: Target, place: Place, most: int | None, node: str | None, render: Render, *, follow: bool
) -> None:
    async with target.connect() as log:
        reading = Reading(log, node)
        if follow:
            await reading.follow(place, render)
            return
        start, end = await reading.span(Range(place, None))
        await reading.copy(start, end if most is None else min(end, start + most), render)
