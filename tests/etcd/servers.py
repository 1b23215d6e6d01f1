"""Two servers that are asked the same: etcd, and ours. Each start is with an empty store."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError

from tests.etcd.programs import ROOT, program

START_S = 30


@contextmanager
def etcd(*flags: str) -> Iterator[str]:
    """The address of a new etcd of one member. It does not fsync: nobody kills it."""
    data = Path(tempfile.mkdtemp(prefix="dledger-etcd-"))
    client, peer = free_ports(2)
    url, peer_url = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
    command = [
        str(program("etcd")),
        *("--name", "judge", "--data-dir", str(data / "data"), "--log-level", "error", "--unsafe-no-fsync"),
        *("--listen-client-urls", url, "--advertise-client-urls", url),
        *("--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url),
        *("--initial-cluster", f"judge={peer_url}", *flags),
    ]
    with (data / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _await_health(f"{url}/health", process, data / "log")
        yield f"127.0.0.1:{client}"
        if process.poll() is not None:
            sys.stderr.write(f"etcd has ended by itself:\n{(data / 'log').read_text()[:4_000]}\n")
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(data)


def free_ports(count: int) -> list[int]:
    """Ports that nobody has at the moment."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _await_health(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline_s = time.monotonic() + START_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        except (URLError, ConnectionError, TimeoutError) as why:
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"etcd does not start: {why}; {log.read_text()[-2_000:]}") from why
        time.sleep(0.02)  # it does not tell when it is ready; only its port does


@contextmanager
def cluster(nodes: int = 3) -> Iterator[str]:
    """The address of a node of a new cluster of ours: whichever was founded first, and it seldom leads."""
    data = Path(tempfile.mkdtemp(prefix="dledger-cluster-"))
    command = [
        *(sys.executable, "-m", "dledger", "dev", "--nodes", str(nodes), "--port", "0", "--data", str(data)),
        *("--durability", "none"),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT)
    assert process.stdout is not None
    try:
        ready = process.stdout.readline().decode()
        if not ready.startswith("ready "):
            raise RuntimeError(f"our cluster ended with {process.wait()}")
        [endpoints] = [each.removeprefix("endpoints=") for each in ready.split() if each.startswith("endpoints=")]
        yield endpoints.split(",")[0]
    finally:
        process.terminate()
        process.stdout.close()
        process.wait()
        shutil.rmtree(data)


@contextmanager
def ours(*flags: str) -> Iterator[str]:
    """The address of our services, on one store without a log, in a process of its own."""
    command = [sys.executable, "-m", "tests.etcd.server", *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        address = process.stdout.readline().decode().strip()
        if not address:
            raise RuntimeError(f"our server ended with {process.wait()}")
        yield address
    finally:
        process.stdin.close()  # it ends with it
        process.stdout.close()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
