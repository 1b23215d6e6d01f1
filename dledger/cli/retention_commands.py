"""``dledger admin trim | retention``: what the log keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dledger.cli.asking import confirm, is_at_terminal
from dledger.cli.options import Target, client_options, option, output_option
from dledger.cli.output import print_fields, print_json
from dledger.cli.runtime import run
from dledger.cli.units import DURATION_MS, RECORD_INDEX, SIZE_BYTES, format_duration, format_size
from dledger.cli.waiting import telling

if TYPE_CHECKING:
    from dledger.client import RetentionChange, TrimResult
    from dledger.common.types import GroupSettings

dry_run_option = option("--dry-run", env="DRY_RUN", is_flag=True, help="Say what would go; nothing does.")


yes_option = option("--yes", env="YES", is_flag=True, help="Do not ask on a terminal.")


@click.command()
@option("--before", env="BEFORE", metavar="INDEX", required=True, type=RECORD_INDEX, help="The first to be kept.")
@yes_option
@dry_run_option
@output_option("text", "json")
@client_options
def trim(*, target: Target, before: int, yes: bool, dry_run: bool, output: str) -> None:
    """Drops the records before an index from every node. They cannot be had back.

    Whole segments go: what is kept may begin a little earlier, and the newest segment always stays. Only what is
    committed goes. first_index says where the log begins then. On a terminal it asks first, and says how many records
    go; scripts are not asked.
    """
    if not yes and not dry_run and is_at_terminal():
        would = run(_trim(target, before, dry_run=True))
        _confirm(would.trimmed_records, would.trimmed_bytes, target)
    done = run(_trim(target, before, dry_run=dry_run))
    if not done.trimmed_records:
        click.echo(f"nothing: {run(_why_nothing(target, before, done.first_index))}", err=True)
    if output == "json":
        print_json({**done._asdict(), "dry_run": dry_run})
    else:
        freed = {"trimmed_records": done.trimmed_records, "trimmed": format_size(done.trimmed_bytes)}
        print_fields("dry-run" if dry_run else "trimmed", {"first_index": done.first_index, **freed})


def _confirm(records: int, size_bytes: int, target: Target) -> None:
    """Asks, if any records would go. Raises click.Abort unless the answer is yes."""
    if records:
        what = f"{records:,} record{'s' if records != 1 else ''} (about {format_size(size_bytes)} on each node)"
        confirm(f"{what} of the group {target.group} will be gone from every node, for good.", "Delete them?")


async def _why_nothing(target: Target, before: int, first_index: int) -> str:
    """Why a trim before that index takes no record."""
    if before <= first_index:
        return f"the log begins at record {first_index} already"
    async with target.connect() as log:
        segments = await log.segments()
    first = min(segments, key=lambda each: each.base_index, default=None)
    if first is None or first.end_index <= before < max(each.end_index for each in segments):
        return f"no whole segment before record {before} may go yet: try again after a moment"
    place = f"records {first.base_index} to {first.end_index - 1} are in"
    if len(segments) == 1:
        return f"{place} the segment that is written to, which stays"
    return f"{place} one segment, and only whole segments go"


async def _trim(target: Target, before: int, *, dry_run: bool) -> TrimResult:
    async with telling(target) as (log, _):
        return await log.admin.trim(before, dry_run=dry_run)


@click.command()
@option("--max-age", env="MAX_AGE", metavar="DURATION", type=DURATION_MS, help="Older records go: 72h, 30m; 0: never.")
@option("--max-bytes", env="MAX_BYTES", metavar="SIZE", type=SIZE_BYTES,
        help="Of a larger log the oldest go: 10GiB, 500MB; 0: no limit.")  # fmt: skip
@yes_option
@dry_run_option
@output_option("text", "json")
@client_options
def retention(
    *, target: Target, max_age: int | None, max_bytes: int | None, yes: bool, dry_run: bool, output: str
) -> None:
    """Says what is trimmed by itself, or shows it. What is not named stays as it is.

    \b
    dledger admin retention --max-age 72h --max-bytes 10GiB
    dledger admin retention --max-age 0              age counts no more, the size still does
    dledger admin retention --max-bytes 1GiB --dry-run     what the next trim would take
    dledger admin retention                          what is said now

    Whole segments go, when all of their records may; the newest segment always stays. On a terminal it asks first if
    the next trim takes any records, and says how many; scripts are not asked.
    """
    if max_age is None and max_bytes is None:
        _show(run(_settings(target)), {}, "retention", output)
        return
    if not yes and not dry_run and is_at_terminal():
        would = run(_retain(target, max_age, max_bytes, dry_run=True))
        _confirm(would.trimmed_records, would.trimmed_bytes, target)
    change = run(_retain(target, max_age, max_bytes, dry_run=dry_run))
    taken = {"trimmed_records": change.trimmed_records, "trimmed_bytes": change.trimmed_bytes, "dry_run": dry_run}
    _show(change.settings, taken, "dry-run" if dry_run else "retention", output)


def _show(settings: GroupSettings, taken: dict[str, Any], word: str, output: str) -> None:
    if output == "json":
        limits = {"max_age_ms": settings.retention_max_age_ms, "max_bytes": settings.retention_max_bytes}
        print_json({**limits, **taken})
        return
    told = describe(settings)
    if taken:
        told |= {"next_trim_records": taken["trimmed_records"], "next_trim": format_size(taken["trimmed_bytes"])}
    print_fields(word, told)


def describe(settings: GroupSettings) -> dict[str, str | None]:
    """The limits for eyes; None: there is none."""
    return {
        "max_age": format_duration(settings.retention_max_age_ms) if settings.retention_max_age_ms else None,
        "max_bytes": format_size(settings.retention_max_bytes) if settings.retention_max_bytes else None,
    }


async def _settings(target: Target) -> GroupSettings:
    async with target.connect() as log:
        return (await log.status()).settings


async def _retain(target: Target, max_age_ms: int | None, max_bytes: int | None, *, dry_run: bool) -> RetentionChange:
    async with telling(target) as (log, _):
        return await log.admin.set_retention(max_age_ms=max_age_ms, max_bytes=max_bytes, dry_run=dry_run)
