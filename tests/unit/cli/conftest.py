"""Runs commands in this process, as ``main`` does, against a log in memory; those of the store against a server."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from dledger.cli.main import cli
from dledger.cli.options import Target
from dledger.cli.runtime import exit_code_of
from tests.etcd.programs import ROOT
from tests.etcd.servers import ours
from tests.unit.cli.fake_log import FakeLog


@dataclass(frozen=True)
class Outcome:
    """How a command ended, and what it wrote."""

    code: int
    out: bytes
    err: str

    @property
    def last_json(self) -> dict[str, Any]:
        """The object on the last line of stdout."""
        found: dict[str, Any] = json.loads(self.out.splitlines()[-1])
        return found


Run = Callable[..., Outcome]


@pytest.fixture
def fake() -> FakeLog:
    """What every command connects to."""
    return FakeLog()


@contextmanager
def _logging_kept() -> Iterator[None]:
    """A command sets up its process's logs, and this process goes on without it."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


@pytest.fixture
def dledger(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """``dledger("get", "7", log=fake, stdin=b"…")``."""
    for name in [name for name in os.environ if name.startswith("DLEDGER_")]:
        monkeypatch.delenv(name)

    def run(*arguments: str, log: FakeLog | None = None, stdin: bytes | None = None) -> Outcome:
        if log is not None:
            monkeypatch.setattr(Target, "connect", lambda *_, **how: log.connected(**how))
            monkeypatch.setattr(Target, "connect_cluster", lambda *_, **how: log.connected(**how).cluster)
        if stdin is not None:
            reading, writing = os.pipe()
            os.write(writing, stdin)
            os.close(writing)
            monkeypatch.setattr("dledger.cli.append.STDIN", reading)
            monkeypatch.setattr("dledger.cli.kv_format.STDIN", reading)
        with _logging_kept():
            code = exit_code_of(lambda: cli.main(args=list(arguments), prog_name="dledger", standalone_mode=False))
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        return Outcome(code, out, err.decode())

    return run


Kv = Callable[..., Outcome]
"""``kv("put", "a", "1")``; ``lease-grant`` is ``lease grant``."""


@pytest.fixture
def address() -> Iterator[str]:
    with ours() as address:
        yield address


@pytest.fixture
def kv(dledger: Run, address: str) -> Kv:
    def run(*arguments: str, stdin: bytes | None = None) -> Outcome:
        command, *rest = arguments
        group, _, name = command.partition("-")
        words = [group, name] if group == "lease" else [command]
        return dledger("kv", *words, "--endpoints", address, *rest, stdin=stdin)

    return run


def begin(*arguments: str) -> subprocess.Popen[bytes]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DLEDGER_")}
    return subprocess.Popen(
        [sys.executable, "-m", "dledger", "kv", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env=environment,
    )
