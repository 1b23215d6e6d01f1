"""Which machine, and which program, a result is of."""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any

import click

from bench.work import MeasurementFailed
from dledger import __version__

ROOT = Path(__file__).parents[1]
LOCK = Path(f"/tmp/dledger-bench-{os.getuid()}.lock")  # one for all, whatever their TMPDIR
IN_MEMORY = ("tmpfs", "ramfs")
"""File systems where a sync costs nothing."""
QUIET_SHARE, QUIET_WITHIN_S = 0.1, 60.0
DATA_PREFIX = "dledger-bench-turn-"
KEPT_LOGS = ROOT / ".bench" / "logs"
"""Of turns that failed."""
GIGABYTE = 1e9
_HELD: list[IO[str]] = []
_MEASURED = ("dledger", "bench", ":!bench/results", ":!bench/README.md")


def describe() -> dict[str, Any]:
    """What figures depend on: they can be compared where it is the same."""
    return {
        "cores": os.cpu_count(),
        "processor": processor(),
        "kernel": platform.release(),
        "boot": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "file_system": file_system(Path(tempfile.gettempdir())),
        "python": platform.python_version(),
        "program": program(),
    }


def processor() -> str:
    """The model's name, as the kernel has it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return ", ".join(sorted({line.partition(":")[2].strip() for line in lines if line.startswith("model name")}))


def sentence(machine: dict[str, Any]) -> str:
    return (
        f"{machine['cores']} cores ({machine['processor']}), Linux {machine['kernel']}, {machine['file_system']}, "
        f"Python {machine['python']}; dledger {machine['program']}."
    )


def now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S %z")


def program() -> str:
    """The last commit that changed what is measured, and eight digits of what was changed since; the version, where
    there is no repository."""
    try:
        commit = _git("log", "-1", "--format=%h", "--abbrev=12", "--", *_MEASURED).decode().strip()
        changes = _git("diff", "HEAD", "--", *_MEASURED)
        changes += _git("ls-files", "--others", "--exclude-standard", "--", *_MEASURED)
    except (OSError, subprocess.CalledProcessError):
        return __version__
    return f"{commit}+{blake2b(changes, digest_size=4).hexdigest()}" if changes else commit


@cache
def program_at_first() -> str:
    """As it was when this process first asked: what is to be measured."""
    return program()


def require_same_program() -> None:
    """Raises MeasurementFailed where the sources were changed since ``program_at_first``: what was measured before and
    what is behind would be of two programs. A checkout that nobody works in measures in peace."""
    if (current := program()) != program_at_first():
        text = f"the sources are {current} now and were {program_at_first()}: measure in a checkout of its own"
        raise MeasurementFailed(text)


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout


def file_system(path: Path) -> str:
    """The type of the one that ``path`` lies on."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    around = [(len(point), kind) for point, kind in mounts if path.resolve().is_relative_to(point)]
    return max(around, default=(0, "unknown"))[1]


@cache
def measure_alone() -> None:
    """Until this process ends nobody else measures: two at once would measure each other. What a run that was killed
    has left behind is removed. Raises MeasurementFailed."""
    lock = LOCK.open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with lock:
            lock.seek(0)
            told = lock.read()
        raise MeasurementFailed(f"another run is under way on this machine: process {told or '?'}") from None
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    _HELD.append(lock)
    program_at_first()
    for left in Path(tempfile.gettempdir()).glob(f"{DATA_PREFIX}*/"):
        with suppress(OSError), _held(left):  # somebody else's, or in use in a container that shares the folder alone
            click.echo(f"{left} is of a run that was killed: it is removed", err=True)
            shutil.rmtree(left)
            os.sync()


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Nobody else holds it meanwhile. Raises OSError where somebody does."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def wait_quiet() -> float:
    """Until hardly anything runs here, or that is given up; which is told. Returns the share of the machine that was
    busy at last."""
    deadline = time.monotonic() + QUIET_WITHIN_S
    while (busy := _busy_share(1.0)) > QUIET_SHARE and time.monotonic() < deadline:
        pass
    if busy > QUIET_SHARE:
        click.echo(f"the machine is not quiet: {busy:.0%} of it is busy", err=True)
    return round(busy, 2)


def _busy_share(over_s: float) -> float:
    """Of all cores."""

    def ticks() -> tuple[int, int]:
        user, nice, system, idle, waiting, *others = map(
            int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
        )
        return idle + waiting, user + nice + system + idle + waiting + sum(others)

    idle, whole = ticks()
    time.sleep(over_s)
    idle_now, whole_now = ticks()
    return 1 - (idle_now - idle) / max(1, whole_now - whole)


def check_data_folder() -> None:
    """Raises MeasurementFailed where data would lie in memory, or elsewhere than where TMPDIR says."""
    folder = Path(tempfile.gettempdir())
    if (named := os.environ.get("TMPDIR")) and not (Path(named).is_dir() and os.access(named, os.W_OK | os.X_OK)):
        raise MeasurementFailed(f"TMPDIR is {named}, where nothing can be written: create it, or name another folder")
    if (kind := file_system(folder)) in IN_MEMORY:
        text = f"{folder} is a {kind}, where a sync costs nothing: set TMPDIR to a folder on a disk"
        raise MeasurementFailed(text)


def check_space(needed_gb: float) -> None:
    """Raises MeasurementFailed where what is to be written has no room."""
    folder = Path(tempfile.gettempdir())
    free_gb = shutil.disk_usage(folder).free / GIGABYTE
    if free_gb < needed_gb:
        raise MeasurementFailed(
            f"{folder} has {free_gb:.0f} GB free, and up to {needed_gb:.0f} GB are written: ask for less "
            "(--duration, --gigabytes), or set TMPDIR to a folder on a larger disk"
        )


@contextmanager
def data_folder(needed_gb: float = 0) -> Iterator[Path]:
    """A folder for one turn's data, removed behind it; what the turn wrote costs the next one nothing. TMPDIR says
    where. Of a turn that fails the logs are kept. Raises MeasurementFailed where that is in memory or too small, and
    while another process measures."""
    measure_alone()
    check_data_folder()
    check_space(needed_gb)
    path = Path(tempfile.mkdtemp(prefix=DATA_PREFIX))
    try:
        with _held(path):
            yield path
    except MeasurementFailed as failure:
        raise MeasurementFailed(str(failure).replace(str(path), str(keep_logs(path)))) from failure
    except Exception as failure:
        failure.add_note(f"the logs are in {keep_logs(path)}")
        raise
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.sync()


def keep_logs(data: Path) -> Path:
    """Returns where they are now."""
    kept = KEPT_LOGS / time.strftime("%Y%m%d-%H%M%S")
    with suppress(OSError):  # of a disk that is full, say: what failed is told all the same
        kept.mkdir(parents=True, exist_ok=True)
        for log in data.glob("*.log"):
            shutil.copy(log, kept)
    return kept
