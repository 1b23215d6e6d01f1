"""Processes that end with this one, and the processor time that they take."""

from __future__ import annotations

import os
import random
import select
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from typing import TypeVar

from bench.work import MeasurementFailed
from dledger.cli.ports import HIGHEST, LOOPBACK, LOWEST, busy_port

STOP_GRACE_S = 5.0
POLL_INTERVAL_S = 0.02
ANSWER_S = 30.0
"""Time for what is answered at once; a machine that is busy with starts is slow."""
DIRECT = (("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1))
"""A channel's options: through no proxy, and without waiting longer where an earlier channel found nobody."""
_CHUNK_BYTES = 64 * 1024
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_Found = TypeVar("_Found")


class Child:
    """One process; what it says on stderr (and on stdout, unless ``talks``) goes to ``log``."""

    def __init__(
        self,
        command: Sequence[str | Path],
        log: Path,
        *,
        talks: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Starts it. ``talks``: its stdin and stdout are pipes to this process."""
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log
        self._heard = b""
        # The kernel ends it with this process, however that ends.
        lifeline = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [*lifeline, *map(str, command)],
                stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
                stdout=subprocess.PIPE if talks else output,
                stderr=output,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
                text=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def tell(self, line: str) -> None:
        """Writes a line to its stdin."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self.failure() from None

    def hear(self, timeout_s: float = ANSWER_S) -> str:
        """The next line of its stdout. Raises MeasurementFailed when it has ended, or says nothing for so long."""
        assert self.process.stdout is not None
        pipe = self.process.stdout.fileno()
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._heard:
            if not select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise MeasurementFailed(f"{self.log.stem} did not answer within {timeout_s:.0f} s (see {self.log})")
            said = os.read(pipe, _CHUNK_BYTES)
            if not said:
                raise self.failure()
            self._heard += said
        line, _, self._heard = self._heard.partition(b"\n")
        return line.decode()

    def failure(self) -> MeasurementFailed:
        """What it said last."""
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return MeasurementFailed(f"{self.log.stem} ended: {lines[-1] if lines else 'without a word'} (see {self.log})")

    def raise_if_ended(self) -> None:
        if self.process.poll() is not None:
            raise self.failure()

    def end(self) -> None:
        """Does no harm to one that has ended. SIGTERM, and SIGKILL for what is still there after ``STOP_GRACE_S``."""
        if self.process.stdin is not None:
            with suppress(BrokenPipeError):  # what it did not read any more is still to be written
                self.process.stdin.close()
        self.process.terminate()
        try:
            self.process.wait(STOP_GRACE_S)
        except subprocess.TimeoutExpired:
            self.kill()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def kill(self) -> None:
        """kill -9, and waits for its end."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def end_all(children: Iterable[Child]) -> None:
    """Ends all of them, whatever becomes of one, and side by side: nobody waits for a quorum that is leaving."""
    children = list(children)
    with ExitStack() as ending:
        for child in reversed(children):
            ending.callback(child.end)
        for child in children:
            child.process.terminate()  # of one that has ended it is nothing


def core_seconds(pids: Iterable[int]) -> float:
    """User and system time of the processes' threads so far, ended ones included."""
    total = 0
    for pid in pids:
        # The second field, the name, may hold blanks and brackets: what counts begins behind the last bracket.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / _TICKS_PER_S


def largest_mb(children: Iterable[Child]) -> float:
    """What the one that had the most memory had of it, of those that run, since they began."""
    return max(peak_bytes(child.pid) for child in children if child.process.poll() is None) / 1e6


def resident_bytes(pid: int) -> int:
    """The memory that the process has now."""
    told = Path(f"/proc/{pid}/status").read_text()
    return int(told.partition("VmRSS:")[2].split()[0]) << 10


def peak_bytes(pid: int) -> int:
    """The most resident memory that the process ever had."""
    told = Path(f"/proc/{pid}/status").read_text()
    return int(told.partition("VmHWM:")[2].split()[0]) << 10


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody listens on now, and that no connection is given before they are used."""
    ports = random.sample(range(LOWEST, HIGHEST), HIGHEST - LOWEST)
    return list(islice((port for port in ports if busy_port([port]) is None), count))


def wait_until(
    holds: Callable[[], bool], what: str, *, children: Iterable[Child] = (), timeout_s: float = 60.0
) -> None:
    """Asks until ``holds``: other processes cannot be awaited. Raises MeasurementFailed when one of them ended."""
    wait_for(lambda: holds() or None, what, children=children, timeout_s=timeout_s)


def wait_for(
    find: Callable[[], _Found | None], what: str, *, children: Iterable[Child] = (), timeout_s: float = 60.0
) -> _Found:
    """The first that ``find`` finds, asked like ``wait_until``."""
    children = list(children)
    deadline = time.monotonic() + timeout_s
    while (found := find()) is None:
        for child in children:
            child.raise_if_ended()
        if time.monotonic() > deadline:
            raise MeasurementFailed(f"{what}: not within {timeout_s:.0f} s")
        time.sleep(POLL_INTERVAL_S)
    return found


def answers(port: int) -> bool:
    """Whether somebody accepts connections on the port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((LOOPBACK, port)) == 0


def serves_grpc(port: int) -> bool:
    """Whether gRPC's health service answers on the port that it serves. A port that is bound takes connections before
    anybody answers them: such an answer is waited for."""
    import grpc  # noqa: PLC0415  # programs of ours set its switches first
    from grpc_health.v1 import health_pb2, health_pb2_grpc  # noqa: PLC0415

    if not answers(port):
        return False
    with grpc.insecure_channel(f"{LOOPBACK}:{port}", options=DIRECT) as channel:
        try:
            said = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=ANSWER_S)
        except grpc.RpcError:
            return False
    return bool(said.status == health_pb2.HealthCheckResponse.SERVING)
