"""``dledger spark``: jobs over the log, or over copies of its nodes' files. Needs the extra [spark]."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dledger.cli.options import DEV_NODES, Target, client_options, option, output_option
from dledger.cli.runtime import EXIT_BAD, EXIT_OK
from dledger.cli.spark_session import LOCAL_MASTER, NEEDED_LOCALLY, progress_of, require_extra, session, show
from dledger.common.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


@click.group()
def spark() -> None:
    """Archives, audits, checks and plots a log with Spark, on this machine or on a cluster.

    Each ends with one line of what it found: as JSON with -o json. Needs: pip install 'dledger[spark]'
    """


master_option = option(
    "--master", env="SPARK_MASTER", default=LOCAL_MASTER, metavar="URL", help="Spark's master: local[N], spark://…"
)


def log_options(target: Target, read_from: str = "leader") -> dict[str, str]:
    """The source's options for what the command line names."""
    return {
        "dledger.endpoints": target.endpoints,
        "group": target.group,
        "readFrom": read_from,
        "timeoutMs": str(target.timeout_ms),
    }


@spark.command()
@click.argument("out", metavar="OUT", type=click.Path(path_type=Path))
@option("--follow", "-f", env="FOLLOW", is_flag=True, help="Go on with what comes, until interrupted.")
@option("--batch-records", env="BATCH_RECORDS", type=click.IntRange(1), default=None,
        help="Of one micro-batch, at most.  [default: about 256 MiB]")  # fmt: skip
@option("--no-verify", env="NO_VERIFY", is_flag=True, help="Do not compare with the log at the end.")
@option("--read-from", env="READ_FROM", default="leader", metavar="NODE", help="leader, any, or a node's id.")
@master_option
@client_options
@output_option("text", "json")
def archive(
    *,
    out: Path,
    follow: bool,
    batch_records: int | None,
    no_verify: bool,
    read_from: str,
    master: str,
    target: Target,
    output: str,
) -> int:
    """Writes the committed log to OUT as Parquet, by date, and compares every record with the log.

    Can be killed at any moment and started again: it goes on where it was. Exits with 1 when records are missing,
    doubled or differ.
    """
    with session("archive", master) as made, progress_of("archive") as tell:
        from dledger.spark.jobs import archive as job  # noqa: PLC0415  # not for --help

        log = log_options(target, read_from)
        if batch_records is not None:
            log["maxOffsetsPerTrigger"] = str(batch_records)
        if follow:
            job.start(made, log, out.absolute(), follow=True).awaitTermination()
            return EXIT_OK
        found = job.archive(made, log, out.absolute(), verify=not no_verify, tell=tell)
    show("archived", found, output)
    return EXIT_BAD if any(found.get(key) for key in ("missing", "doubled", "differing")) else EXIT_OK


@spark.command()
@click.argument("directories", metavar="DIR…", nargs=-1, required=True, type=click.Path(path_type=Path))
@option("--engine", env="ENGINE", type=click.Choice(["spark", "local"]), default="spark", help="Who sums up.")
@master_option
@output_option("text", "json")
def audit(*, directories: tuple[Path, ...], engine: str, master: str, output: str) -> int:
    """Compares the files of several nodes, frame by frame: index, term and chain; gaps, divergence and rot.

    DIR: each node's data directory, or a copy. Looks at what each knows to be committed; read-only, also beside live
    nodes. Exits with 1 when anything is wrong, and names the frames; with 2 where a DIR holds no log.
    """
    require_extra(NEEDED_LOCALLY)
    from dledger.kernels.log_audit import audit_locally, require_logs  # noqa: PLC0415  # not for --help

    paths = [directory.absolute() for directory in directories]
    require_logs(paths)
    if engine == "local":
        found = audit_locally(paths)
    else:
        with session("audit", master) as made:
            from dledger.spark.jobs import audit as job  # noqa: PLC0415  # not for --help

            found = job.audit(made, paths)
    for example in found.examples:
        click.echo(example, err=True)
    show(
        "audited", found.as_dict() if output == "json" else {**found.as_dict(), "examples": len(found.examples)}, output
    )
    return EXIT_OK if found.ok else EXIT_BAD


def records_of(
    spark_session: SparkSession, archive_dir: Path | None, target: Target, columns: str = "timestamp,value"
) -> DataFrame:
    """An archive's rows, or the log's own."""
    if archive_dir is not None:
        from dledger.spark.jobs.archive import read  # noqa: PLC0415  # not for --help

        return read(spark_session, archive_dir.absolute())
    options = {**log_options(target), "columns": columns}
    return spark_session.read.format("dledger").options(**options).load()


archive_option = option(
    "--archive", "archive_dir", env="ARCHIVE", metavar="DIR", type=click.Path(path_type=Path), default=None,
    help="Of an archive, not of the log.",
)  # fmt: skip


history_option = option(
    "--history", env="HISTORY", metavar="PATH", type=click.Path(path_type=Path), default=None,
    help="Of the appends in a fault test's history (its directory, Parquet, or .jsonl): latency and availability, too.",
)  # fmt: skip
counting_option = option(
    "--engine", env="ENGINE", type=click.Choice(["spark", "local"]), default="spark", help="Who counts."
)


def sums_of_calls(name: str, history: Path, engine: str, master: str) -> pa.Table:
    """What was counted of a history's appends."""
    from dledger.spark.jobs import calls, histories  # noqa: PLC0415  # not for --help

    found = histories.find(history.absolute())
    if engine == "local":
        return calls.local_sums(found)
    with session(name, master) as made:
        return calls.sums(made, found)


def sums_of_records(name: str, archive_dir: Path | None, target: Target, engine: str, master: str) -> pa.Table:
    """What was counted of an archive's records, or the log's."""
    from dledger.spark.jobs import stats as job  # noqa: PLC0415  # not for --help

    if engine == "local":
        if archive_dir is not None:
            raise ConfigError("an archive is counted by Spark: leave --engine out")
        return job.local_sums(log_options(target))
    with session(name, master) as made:
        return job.sums(records_of(made, archive_dir, target))


def refuse_both(archive_dir: Path | None, history: Path | None) -> None:
    """Raises CONFIG_ERROR."""
    if archive_dir is not None and history is not None:
        raise ConfigError("--archive and --history are two things to look at, each by its own clock: name one")


@spark.command()
@archive_option
@history_option
@counting_option
@master_option
@client_options
@output_option("text", "json")
def stats(
    *, archive_dir: Path | None, history: Path | None, engine: str, master: str, target: Target, output: str
) -> None:
    """Says how many records there are, how large, how fast they came, and the longest time in which none did.

    A log does not hold how long its appends took: with --history a test's are counted, by latency and outcome.
    """
    require_extra()
    refuse_both(archive_dir, history)
    from dledger.kernels.call_stats import call_summary  # noqa: PLC0415  # not for --help
    from dledger.kernels.record_stats import summary  # noqa: PLC0415  # not for --help

    if history is not None:
        found = call_summary(sums_of_calls("stats", history, engine, master))
    else:
        found = summary(sums_of_records("stats", archive_dir, target, engine, master))
    show("stats", found, output)


@spark.command()
@click.argument("out", metavar="OUT", type=click.Path(path_type=Path))
@archive_option
@history_option
@counting_option
@master_option
@client_options
@output_option("text", "json")
def plot(
    *, out: Path, archive_dir: Path | None, history: Path | None, engine: str, master: str, target: Target, output: str
) -> None:
    """Draws rates and sizes over time as OUT.png, and as OUT.html with the numbers beside it.

    With --history latency and availability as well, which a log does not hold.
    """
    require_extra()
    refuse_both(archive_dir, history)
    from dledger.spark.jobs import calls  # noqa: PLC0415  # not for --help
    from dledger.spark.jobs import stats as job  # noqa: PLC0415  # not for --help

    if history is not None:
        found = calls.plot(sums_of_calls("plot", history, engine, master), out.absolute(), str(history))
    else:
        merged = sums_of_records("plot", archive_dir, target, engine, master)
        found = job.plot(merged, out.absolute(), str(archive_dir or f"{target.endpoints}/{target.group}"))
    show("plotted", found, output)


@spark.command()
@option("--nodes", env="NODES", default=DEV_NODES, type=click.IntRange(3, 9), help="How many.")
@option("--file", env="FILE", metavar="PATH", type=click.Path(exists=True, dir_okay=False), help="Other input.")
@output_option("json", "text")
def demo(*, nodes: int, file: str | None, output: str) -> int:
    """Appends CPython's standard library to five nodes while Spark archives it, kills the leader and the Spark driver
    half-way, and compares the archive with the input, the log and all nodes' files.

    Exits with 0 only if nothing is missing and nothing doubled. Takes free ports and a temporary directory.
    """
    require_extra()
    from dledger.cli.demo_input import one_file, standard_library  # noqa: PLC0415  # not for --help
    from dledger.cli.demo_spark import play  # noqa: PLC0415  # not for --help

    found, clean = play(one_file(Path(file)) if file else standard_library(), nodes)
    show("demo", found, output)
    return EXIT_OK if clean else EXIT_BAD


@spark.command()
@click.argument("source", metavar="SOURCE", type=click.Path(path_type=Path))
@option("--name", env="NAME", default=None, metavar="NAME", help="Run again under it to go on.  [default: SOURCE]")
@option("--order", env="ORDER", default="index", metavar="COLUMN", help="The column that gives the order.")
@option("--from", "first_index", env="FROM", metavar="INDEX", type=click.IntRange(0), default=None,
        help="Only from there on: the end_index of the last replay, when the archive has grown since.")  # fmt: skip
@master_option
@client_options
@output_option("text", "json")
def replay(
    *,
    source: Path,
    name: str | None,
    order: str,
    first_index: int | None,
    master: str,
    target: Target,
    output: str,
) -> None:
    """Appends the values of an archive, or of any Parquet with a column value, in order and exactly once."""
    with session("replay", master) as made, progress_of("replay") as tell:
        from dledger.spark.jobs import replay as job  # noqa: PLC0415  # not for --help

        log = {key: text for key, text in log_options(target).items() if key != "readFrom"}
        found = job.replay(
            made,
            source.absolute(),
            log,
            name or str(source.absolute()),
            order=order,
            first_index=first_index,
            tell=tell,
        )
    show("replayed", found, output)


@spark.command()
@click.argument("out", metavar="OUT", type=click.Path(path_type=Path))
@option("--key", env="KEY", default=None, metavar="SQL", help="What a record's key is.  [default: .key of its JSON]")
@archive_option
@master_option
@client_options
@output_option("text", "json")
def compact(*, out: Path, key: str | None, archive_dir: Path | None, master: str, target: Target, output: str) -> None:
    """Writes the latest record of each key to OUT as Parquet: what a log of changes amounts to.

    Exits with 2, and leaves OUT as it is, when no record has a key.
    """
    with session("compact", master) as made, progress_of("compact") as tell:
        from dledger.spark.jobs import compact as job  # noqa: PLC0415  # not for --help

        records = records_of(made, archive_dir, target, columns="index,term,timestamp,value")
        found = job.compact(records, out.absolute(), key=key or job.DEFAULT_KEY, tell=tell)
    show("compacted", found, output)


@spark.command()
@click.argument("history", metavar="HISTORY", type=click.Path(exists=True, path_type=Path))
@option("--engine", env="ENGINE", type=click.Choice(["spark", "local"]), default="spark", help="Who judges.")
@master_option
@output_option("text", "json")
def check(*, history: Path, engine: str, master: str, output: str) -> int:
    """Judges a fault test's history (Parquet): lost, doubled, reordered or stale records. Exits with 1 if invalid."""
    require_extra()
    from dledger.spark.jobs import check as job  # noqa: PLC0415  # not for --help

    job.whole(history.absolute())  # refused before Spark is started
    if engine == "local":
        with progress_of("check") as tell:
            found = job.check_locally(history.absolute(), tell=tell)
    else:
        with session("check", master) as made, progress_of("check") as tell:
            found = job.check(made, history.absolute(), tell=tell)
    show("checked", found, output)
    return EXIT_OK if found["valid"] else EXIT_BAD
