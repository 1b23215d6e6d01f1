"""Which machine, and which program, a result is of."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

from bench.work import MeasurementFailed
from dledger import __version__

ROOT = Path(__file__).parents[1]
IN_MEMORY = ("tmpfs", "ramfs")
"""File systems where a sync costs nothing."""
_MEASURED = ("dledger", "bench", ":!bench/results", ":!bench/README.md")


def describe() -> dict[str, Any]:
    """What figures depend on: they can be compared where it is the same."""
    models = {
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    }
    return {
        "cores": os.cpu_count(),
        "processor": ", ".join(sorted(models)),
        "kernel": platform.release(),
        "boot": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "file_system": file_system(Path(tempfile.gettempdir())),
        "python": platform.python_version(),
        "program": program(),
    }


def sentence(machine: dict[str, Any]) -> str:
    return (
        f"{machine['cores']} cores ({machine['processor']}), Linux {machine['kernel']}, {machine['file_system']}, "
        f"Python {machine['python']}; dledger {machine['program']}."
    )


def now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S %z")


def program() -> str:
    """The commit, and eight digits of what was changed since; the version, where there is no repository."""
    try:
        commit = _git("rev-parse", "--short=12", "HEAD").decode().strip()
        changes = _git("diff", "HEAD", "--", *_MEASURED)
    except (OSError, subprocess.CalledProcessError):
        return __version__
    return f"{commit}+{blake2b(changes, digest_size=4).hexdigest()}" if changes else commit


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout


def file_system(path: Path) -> str:
    """The type of the one that ``path`` lies on."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    around = [(len(point), kind) for point, kind in mounts if path.resolve().is_relative_to(point)]
    return max(around, default=(0, "unknown"))[1]


@contextmanager
def data_folder() -> Iterator[Path]:
    """A folder for one turn's data, removed behind it; what the turn wrote costs the next one nothing. TMPDIR says
    where. Raises MeasurementFailed where that is in memory."""
    path = Path(tempfile.mkdtemp(prefix="dledger-bench-"))
    try:
        if (kind := file_system(path)) in IN_MEMORY:
            text = f"{path.parent} is a {kind}, where a sync costs nothing: set TMPDIR to a folder on a disk"
            raise MeasurementFailed(text)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.sync()
