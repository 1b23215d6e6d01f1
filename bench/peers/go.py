"""The load generators that are written in Go."""

from __future__ import annotations

from pathlib import Path

from bench.peers.api import BENCH, BUILT, build, require


def build_go(program: str) -> Path:
    """Builds drivers/go/PROGRAM; returns where it is. Raises PeerMissing."""
    go = require("go", "golang-go")
    build(
        [go, "build", "-o", f"{BUILT / 'bin'}/", f"./{program}"], BENCH / "drivers" / "go", f"the client of {program}"
    )
    return BUILT / "bin" / program
