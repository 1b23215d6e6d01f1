"""Runs etcdctl, and makes what it prints comparable."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from subprocess import PIPE
from typing import IO, NamedTuple

from tests.etcd.programs import program

TIMEOUT_S = 20
SILENT_S = 5
_OWN = (
    (r'"(cluster_id|member_id|raft_term)":\d+', r'"\1":…'),
    (r'"(ClusterID|MemberID|RaftTerm)" : \d+', r'"\1" : …'),
    (r"\b[0-9a-f]{15,16}\b", "ID"),  # of a lease or a member
    (r'"(ID|id|lease)":\d{15,}', r'"\1":ID'),
    (r'"(ID|Lease)" : \d{15,}', r'"\1" : ID'),
    (r"127\.0\.0\.1:\d+", "HOST"),
    (r'"ttl":9\d\d,', '"ttl":…,'),
    (r"took = \S+", "took = …"),
    (r"remaining\(\d+s\)", "remaining(…)"),
    (r'"ts":"[^"]*"', '"ts":…'),
    (r'"caller":"[^"]*"', '"caller":…'),
    (r"target:etcd-endpoints://\S+/", "target:"),
    (r'"target":"etcd-endpoints://[^"]*"', '"target":…'),
)


class Printed(NamedTuple):
    code: int | None
    """None: it would have gone on, and was interrupted."""
    text: str
    errors: str

    def comparable(self) -> tuple[int | None, str, str]:
        return self.code, _common(self.text), _common(self.errors)


def _common(text: str) -> str:
    for pattern, instead in _OWN:
        text = re.sub(pattern, instead, text)
    return text


def _command(address: str, arguments: Sequence[str]) -> list[str]:
    return [str(program("etcdctl")), f"--endpoints={address}", *arguments]


def run(address: str, arguments: Sequence[str], stdin: str = "") -> Printed:
    done = subprocess.run(
        _command(address, arguments),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env=_environment(),
    )
    return Printed(done.returncode, done.stdout, done.stderr)


def run_until(address: str, arguments: Sequence[str], lines: int, meanwhile: Callable[[], None]) -> Printed:
    """Of a command that goes on: interrupted when it has printed so many lines, or for long no more. ``meanwhile`` is
    called at once."""
    command = _command(address, arguments)
    printed: queue.Queue[str] = queue.Queue()
    read: list[str] = []
    with subprocess.Popen(command, stdout=PIPE, stderr=PIPE, text=True, env=_environment()) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        reading = threading.Thread(target=_read, args=(process.stdout, printed))
        reading.start()
        try:
            meanwhile()
            with suppress(queue.Empty):
                while len(read) < lines:
                    read.append(printed.get(timeout=SILENT_S))
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(timeout=SILENT_S)
            except subprocess.TimeoutExpired:
                process.kill()
            reading.join()
            errors = process.stderr.read()
    return Printed(None, "".join(read), errors)


def _read(stdout: IO[str], printed: queue.Queue[str]) -> None:
    for line in stdout:
        printed.put(line)


def _environment() -> Mapping[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("ETCDCTL_")}
