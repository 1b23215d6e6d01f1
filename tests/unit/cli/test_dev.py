"""``dledger dev`` as a supervisor, with small stand-ins for nodes."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from dledger.cli.ports import free_base
from tests.unit.cli.conftest import Run

STAND_IN = """
import os, signal, sys
from functools import partial
from pathlib import Path
from dledger.cli.lifeline import stop_when_released
flags = dict(zip(sys.argv[2::2], sys.argv[3::2]))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
stop_when_released(Path(flags["--stop-with"]))
pid_file = Path(flags["--data"] + ".pid")
pid_file.with_suffix(".new").write_text(str(os.getpid()))
pid_file.with_suffix(".new").rename(pid_file)
signal.pause()
"""
DEV = """
import sys
from dledger.cli import dev
from dledger.cli.cluster import LocalCluster, Ready
from dledger.cli.main import main
from tests.unit.cli.conftest import Run

async def ready(self, timeout_s=30):
    return Ready("n1", 4)

LocalCluster.wait_ready = ready
dev._program = lambda: (sys.executable, sys.argv[1])
main(sys.argv[2:])
"""
DEADLINE_S = 10.0


class Dev:
    """A running ``dledger dev`` of three stand-ins."""

    def __init__(self, directory: Path) -> None:
        script = directory / "stand_in.py"
        script.write_text(STAND_IN)
        self.data = directory / "data"
        self.port = free_base(3)
        arguments = ["dev", "--nodes", "3", "--data", str(self.data), "--port", str(self.port)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", DEV, str(script), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        """The next line of stdout."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def complaint(self) -> str:
        """The next line of stderr."""
        assert self.process.stderr is not None
        return self.process.stderr.readline()

    def pid(self, node_id: str, other_than: int = 0) -> int:
        """The node's pid, once it runs."""
        file = self.data / f"{node_id}.pid"
        return int(eventually(lambda: file.exists() and int(file.read_text()) != other_than and file.read_text()))


def eventually(look: Callable[[], object]) -> str:
    """What ``look`` returns as soon as it is true. Other processes can only be watched."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if found := look():
            return str(found)
        time.sleep(0.01)
    raise AssertionError("it did not happen in time")


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").exists() and " Z " in Path(f"/proc/{pid}/stat").read_text()


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[Dev]:
    running = Dev(tmp_path)
    with running.process as process:
        yield running
        process.kill()


def test_one_line_says_that_it_is_ready(dev: Dev) -> None:
    endpoints = ",".join(f"127.0.0.1:{dev.port + 10 * i + 1}" for i in range(3))
    assert dev.line() == f"ready leader=n1 term=4 endpoints={endpoints} data={dev.data}\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_dev_and_every_node(dev: Dev, number: signal.Signals) -> None:
    dev.line()
    pids = [dev.pid(f"n{i}") for i in range(3)]
    dev.process.send_signal(number)
    assert dev.process.wait(DEADLINE_S) == 0
    assert all(gone(pid) for pid in pids)


def test_kill_9_of_dev_ends_every_node(dev: Dev) -> None:
    dev.line()
    pids = [dev.pid(f"n{i}") for i in range(3)]
    dev.process.kill()
    for pid in pids:
        eventually(partial(gone, pid))


def test_a_dead_node_stays_dead_until_its_line_is_run_and_then_ends_with_dev(dev: Dev) -> None:
    ready = dev.line()
    assert "log to" in dev.complaint()
    endpoints = ready.split("endpoints=")[1].split()[0]
    assert f"export DLEDGER_ENDPOINTS={endpoints}" in dev.complaint(), "no command would find these ports"
    old = dev.pid("n1")
    os.kill(old, signal.SIGKILL)
    assert dev.complaint().startswith("n1 was killed by SIGKILL. It stays down")
    line = dev.complaint().strip()
    assert "serve --id n1 --peers n0=127.0.0.1:" in line
    with subprocess.Popen(shlex.split(line)) as revived:
        assert dev.pid("n1", other_than=old) == revived.pid
        assert dev.process.poll() is None
        dev.process.send_signal(signal.SIGTERM)
        assert dev.process.wait(DEADLINE_S) == 0
        assert revived.wait(DEADLINE_S) == 0


def test_another_number_of_nodes_than_the_data_has_is_refused(tmp_path: Path, dledger: Run) -> None:
    for number in range(3):
        (tmp_path / f"n{number}").mkdir()
        (tmp_path / f"n{number}" / "identity").touch()
    outcome = dledger("dev", "--nodes", "5", "--data", str(tmp_path))
    assert outcome.code == 2
    assert "holds a cluster of 3 nodes, not 5: give --nodes 3 or another --data" in outcome.err
