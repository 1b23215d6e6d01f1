"""From what the recorder wrote to one Parquet file, and from that to Arrow batches. Never a whole history in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq

from dledger.common.errors import ConfigError
from dledger.kernels.history import APPEND, HISTORY_SCHEMA, INFO, NOWHERE, OK, problem_of
from dledger.kernels.lines import LINES_SCHEMA

BATCH_ROWS = 128 * 1024


def read_history(path: Path) -> Iterator[pa.RecordBatch]:
    """The batches of a run's directory, of its history.parquet, or of another file of that form.

    Raises CONFIG_ERROR for what is no history."""
    file = path / "history.parquet" if path.is_dir() else path
    batches = _as_recorded(path) if path.is_dir() and not file.exists() else _stored(file)
    for batch in batches:
        _check_words(batch, path)
        yield batch


def _stored(file: Path) -> Iterator[pa.RecordBatch]:
    try:
        with pq.ParquetFile(file) as opened:
            missing = [name for name in HISTORY_SCHEMA.names if name not in opened.schema_arrow.names]
            if missing:
                raise ConfigError(f"{file} is not a history: it has no column {missing[0]!r}")
            for batch in opened.iter_batches(BATCH_ROWS, columns=HISTORY_SCHEMA.names):
                yield batch.cast(HISTORY_SCHEMA)
    except (OSError, pa.ArrowInvalid) as failure:
        raise ConfigError(f"{file} is not a history: {failure}") from None


def _check_words(batch: pa.RecordBatch, path: Path) -> None:
    """A row that no check would look at must not pass for one without a fault. Raises CONFIG_ERROR."""
    if problem := problem_of(batch):
        raise ConfigError(f"{path} is not a history: {problem}")
    is_append = pc.equal(batch.column("kind"), APPEND)
    acknowledged = batch.filter(pc.and_(is_append, pc.equal(batch.column("outcome"), OK)))
    if pc.any(pc.less(acknowledged.column("first_index"), 0)).as_py():
        raise ConfigError(f"{path} is not a history: an append was acknowledged without an index")
    if pc.any(pc.less(batch.filter(is_append).column("count"), 1)).as_py():
        raise ConfigError(f"{path} is not a history: an append of no records")


def to_parquet(run_dir: Path) -> Path:
    """Writes history.parquet of what was recorded, and removes that."""
    target = run_dir / "history.parquet"
    partial = target.with_suffix(".partial")
    with pq.ParquetWriter(partial, HISTORY_SCHEMA, compression="zstd") as writer:
        for batch in _as_recorded(run_dir):
            writer.write_batch(batch)
    partial.rename(target)
    for name in ("appends.jsonl", "reads.arrow"):
        (run_dir / name).unlink()
    return target


def _as_recorded(run_dir: Path) -> Iterator[pa.RecordBatch]:
    appends, reads = run_dir / "appends.jsonl", run_dir / "reads.arrow"
    if not appends.exists():
        raise ConfigError(f"{run_dir} holds no history: neither history.parquet nor appends.jsonl")
    try:
        yield from _appends(appends)
    except pa.ArrowInvalid as failure:
        raise ConfigError(f"{appends} is not a history: {failure}") from None
    if reads.exists():
        yield from _reads(reads)


def _reads(file: Path) -> Iterator[pa.RecordBatch]:
    """Up to where the stream was cut, if it was: a read without its end was not read."""
    with pa.OSFile(str(file), "rb") as opened:
        try:
            yield from pa.ipc.open_stream(opened)
        except (pa.ArrowInvalid, OSError):
            return


def _appends(file: Path) -> Iterator[pa.RecordBatch]:
    """Completed appends, then those that were invoked and never heard of again."""
    lines = _whole_lines(file)
    if not lines.size:
        return
    options = pj.ParseOptions(explicit_schema=LINES_SCHEMA, unexpected_field_behavior="error")
    open_calls: dict[int, pa.RecordBatch] = {}
    for batch in pj.open_json(pa.BufferReader(lines), pj.ReadOptions(block_size=8 << 20), options):
        for name in ("type", "process", "call", "ns", "value", "count"):
            if batch.column(name).null_count:
                raise ConfigError(f"{file} is not a history: a line has no {name}")
        invoked = batch.filter(pc.equal(batch.column("type"), "invoke"))
        completed = batch.filter(pc.not_equal(batch.column("type"), "invoke"))
        _follow(open_calls, invoked, completed)
        yield _rows(completed, completed.column("type"), completed.column("invoked"))
    for unheard in open_calls.values():
        yield _rows(unheard, pa.array([INFO]), unheard.column("ns"))


def _whole_lines(file: Path) -> pa.Buffer:
    """Without what follows the last line's end: the harness was killed as it wrote that, and nobody heard of it."""
    if not file.stat().st_size:
        return pa.py_buffer(b"")
    with pa.memory_map(str(file)) as mapped:
        content = mapped.read_buffer()
    end = content.size
    while end and content[end - 1] != b"\n"[0]:
        end -= 1
    return content.slice(0, end)


def _follow(open_calls: dict[int, pa.RecordBatch], invoked: pa.RecordBatch, completed: pa.RecordBatch) -> None:
    """A process has one append under way: it is open until a line of its call, or a later one, ends it."""
    begun, ended = _last_calls(invoked), _last_calls(completed)
    for process, (_, place) in begun.items():
        open_calls[process] = invoked.slice(place, 1)
    for process, (call, _) in ended.items():
        if process in open_calls and open_calls[process].column("call")[0].as_py() <= call:
            del open_calls[process]


def _last_calls(batch: pa.RecordBatch) -> dict[int, tuple[int, int]]:
    """Of each process: its last call, and where that stands."""
    process = batch.column("process").to_numpy()
    call = batch.column("call").to_numpy()
    order = np.lexsort((call, process))
    is_last = np.append(process[order][1:] != process[order][:-1], True)[: len(order)]
    return {int(process[place]): (int(call[place]), int(place)) for place in order[is_last]}


def _rows(batch: pa.RecordBatch, outcome: pa.Array, invoked_ns: pa.Array) -> pa.RecordBatch:
    rows = batch.num_rows

    def all_rows(value: object, kind: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value, kind), rows)

    nowhere, text = all_rows(NOWHERE, pa.int64()), pa.string()
    columns = {
        "process": batch.column("process"),
        "call": batch.column("call"),
        "kind": all_rows(APPEND, text),
        "outcome": outcome,
        "invoked_ns": invoked_ns,
        "completed_ns": batch.column("ns"),
        "first_value": batch.column("value"),
        "first_index": pc.fill_null(batch.column("index"), NOWHERE),
        "count": batch.column("count"),
        "term": pc.fill_null(batch.column("term"), 0),
        "read_start": nowhere,
        "read_end": nowhere,
        "node": all_rows("", text),
        "error": pc.fill_null(batch.column("error"), ""),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in HISTORY_SCHEMA.names], schema=HISTORY_SCHEMA)
