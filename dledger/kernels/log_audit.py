"""Several nodes' logs, told apart to the frame: the same verdict whichever engine summed them up (frames.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dledger.common.errors import DLedgerError
from dledger.kernels.frames import BLOCK_POSITIONS, blocks_of, frame_batches, merge_blocks
from dledger.log.copy import LogCopy, Sight
from dledger.log.verify import find_log

MOST_EXAMPLES = 20


class Piece(NamedTuple):
    """One file of one node: what one task sums up."""

    node: int
    directory: str
    segment: str
    """The file's path."""


@dataclass
class Audit:
    """The findings. ``rot`` counts frames, ``gaps`` missing ones, ``diverged`` nodes with differing frames."""

    nodes: int = 0
    frames: int = 0
    records: int = 0
    first_index: int = 0
    end_index: int = 0
    """Of the node that knows of the most commits."""
    rot: int = 0
    gaps: int = 0
    diverged: int = 0
    unreadable: int = 0
    """Nodes with files that cannot be opened as a log."""
    examples: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not (self.rot or self.gaps or self.diverged or self.unreadable)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"ok": self.ok, **vars(self)}

    def tell(self, example: str) -> None:
        """For people: the first few."""
        if len(self.examples) < MOST_EXAMPLES:
            self.examples.append(example)


def require_logs(directories: Sequence[Path]) -> None:
    """Before anything is begun: raises CONFIG_ERROR for a directory without a log. The audit itself tells of a log that
    cannot be opened."""
    for directory in directories:
        find_log(directory)


class Nodes:
    """The logs of several nodes, opened."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self.directories = list(directories)
        self.copies: dict[int, LogCopy] = {}
        self.refusals: dict[int, DLedgerError] = {}
        for node, directory in enumerate(directories):
            try:
                self.copies[node] = LogCopy(directory)
            except DLedgerError as refusal:
                self.refusals[node] = refusal

    def pieces(self) -> list[Piece]:
        """All files, each to be summed up by itself."""
        return [
            Piece(node, str(self.directories[node]), segment.path)
            for node, copy in self.copies.items()
            for segment in copy.segments
        ]


def sum_up(piece: Piece, copy: LogCopy | None = None) -> pa.Table:
    """One file's partial result."""
    copy = copy or LogCopy(Path(piece.directory))
    segment = next((each for each in copy.segments if each.path == piece.segment), None)
    if segment is None:  # trimmed since it was listed
        return merge_blocks([])
    return merge_blocks(blocks_of(batch) for batch in frame_batches(copy, segment, piece.node))


def verdict(nodes: Nodes, blocks: pa.Table) -> Audit:
    """Of the merged partial results of all ``nodes.pieces()``."""
    audit = Audit(nodes=len(nodes.directories), unreadable=len(nodes.refusals))
    for node, refusal in nodes.refusals.items():
        audit.tell(f"{nodes.directories[node]}: {refusal}")
    audit.frames = int(np.sum(blocks.column("frames").to_numpy()))
    audit.records = int(np.sum(blocks.column("records").to_numpy()))
    audit.first_index = min((copy.first_index for copy in nodes.copies.values()), default=0)
    audit.end_index = max(map(_end_index, nodes.copies.values()), default=0)
    diverged: set[int] = set()
    for block in suspects(blocks):
        _look_closer(nodes, block, audit, diverged)
    audit.diverged = len(diverged)
    return audit


def _end_index(copy: LogCopy) -> int:
    try:
        return copy.end_index
    except DLedgerError:  # its rot is told of frame by frame
        return 0


def suspects(blocks: pa.Table) -> list[int]:
    """The blocks that not all nodes have the same of, or something is bad in."""
    block, node = blocks.column("block").to_numpy(), blocks.column("node").to_numpy()
    all_nodes = len(np.unique(node))
    found = []
    for each in np.unique(block):
        rows = blocks.filter(pa.array(block == each))
        sums = {tuple(row.values()) for row in rows.select(["frames", "hash"]).to_pylist()}
        whole = rows.num_rows == all_nodes and len(sums) == 1 and not any(rows.column("bad").to_pylist())
        span = int(np.max(rows.column("last_position").to_numpy()) - np.min(rows.column("first_position").to_numpy()))
        if not whole or span + 1 != rows.column("frames")[0].as_py():
            found.append(int(each))
    return found


def _look_closer(nodes: Nodes, block: int, audit: Audit, diverged: set[int]) -> None:
    """Every frame of one block, of every node."""
    start, end = block * BLOCK_POSITIONS, (block + 1) * BLOCK_POSITIONS
    frames = {node: _frames(copy, start, end) for node, copy in nodes.copies.items()}
    for node, sights in frames.items():
        name, copy = nodes.directories[node], nodes.copies[node]
        first = copy.segments[0].previous.position + 1
        for position in range(max(start, first), min(end, copy.commit_position + 1)):
            sight = sights.get(position)
            if sight is None:
                audit.gaps += 1
                audit.tell(f"{name}: frame {position} is missing")
            elif sight.problem:
                audit.rot += 1
                audit.tell(f"{name}: frame {position} at offset {sight.offset}: {sight.problem}")
    for position in range(start, end):
        found = {node: sights[position].header for node, sights in frames.items() if position in sights}
        chains = {node: header.chain for node, header in found.items() if header is not None}
        if len(set(chains.values())) > 1:
            usual = max(set(chains.values()), key=list(chains.values()).count)
            for node in {node for node, chain in chains.items() if chain != usual} - diverged:
                diverged.add(node)
                audit.tell(f"{nodes.directories[node]}: differs from the others from frame {position} on")


def _frames(copy: LogCopy, start: int, end: int) -> dict[int, Sight]:
    """What stands at the positions ``start`` to ``end`` (exclusive)."""
    found = {}
    segments = copy.segments
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        last = following.previous.position if following is not None else end
        if segment.previous.position + 1 < end and last >= start:
            found.update({each.position: each for each in copy.look_at(segment) if start <= each.position < end})
    return found


def audit_locally(directories: Sequence[Path]) -> Audit:
    """The whole audit in this process."""
    nodes = Nodes(directories)
    return verdict(nodes, merge_blocks(sum_up(piece, nodes.copies[piece.node]) for piece in nodes.pieces()))
