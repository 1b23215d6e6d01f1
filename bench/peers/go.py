"""The load generators that are written in Go."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from bench.peers.api import BENCH, BUILT, build, require
from bench.work import PeerMissing

SOURCES = BENCH / "drivers" / "go"
PACKAGE = "golang-go, of Debian 13 or Ubuntu 25.04 at least; for older ones https://go.dev/dl"


def build_go(program: str) -> Path:
    """Builds drivers/go/PROGRAM; returns where it is. Raises PeerMissing."""
    go = require("go", PACKAGE)
    _require_version(go)
    build([go, "build", "-o", f"{BUILT / 'bin'}/", f"./{program}"], SOURCES, f"the client of {program}")
    return BUILT / "bin" / program


def _require_version(go: str) -> None:
    # Asked among the sources, where a Go that may fetch another one already is the one that they ask for.
    command = [go, "env", "GOVERSION"]
    said = subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, check=False, timeout=300).stdout.strip()
    wanted = re.findall(r"^go (\d+)\.(\d+)", (SOURCES / "go.mod").read_text(), re.MULTILINE)
    if _numbers(re.findall(r"^go(\d+)\.(\d+)", said)) < _numbers(wanted):
        needed = ".".join(wanted[0])
        raise PeerMissing(f"Go {needed} or newer is needed, and {go} is {said or 'none'} (apt install {PACKAGE})")


def _numbers(found: list[tuple[str, str]]) -> tuple[int, ...]:
    return tuple(map(int, found[0])) if found else ()
