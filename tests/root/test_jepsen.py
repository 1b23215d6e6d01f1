"""The Jepsen suite itself, on real hosts: a short run is valid, and a killed harness leaves nothing. Needs root."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jepsen.hosts.namespaces import TOOLS
from jepsen.hosts.slots import Slot
from tests.support.lacking import cannot, missing_tools

pytestmark = [pytest.mark.root, pytest.mark.timeout(240)]

FAKE_SSH = """#!/bin/sh
# What ssh does, on this machine: the options and the host are passed over.
shift 4
exec sh -c "$*"
"""


def jepsen_command(store: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "jepsen", "test", "--store", str(store), "--clients", "5", *arguments]


def last_line(done: subprocess.CompletedProcess[str]) -> dict[str, object]:
    return dict(json.loads(done.stdout.strip().rpartition("\n")[2]))


def namespaces() -> list[str]:
    return sorted(path.name for path in Path("/run/netns").glob("dlj*"))


@pytest.fixture(scope="module", autouse=True)
def tools() -> None:
    if lacking := missing_tools(TOOLS):
        cannot(lacking)


@pytest.fixture(autouse=True)
def swept() -> None:
    """What an earlier run left that was killed goes at the next one's beginning: no test is to see that."""
    Slot().release()


def test_a_short_run_under_partitions_is_valid_and_cleans_up(tmp_path: Path) -> None:
    before = namespaces()
    command = jepsen_command(
        tmp_path, "--workload", "log", "--nemesis", "partition-leader,kill-leader", "--time-limit", "16"
    )
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    told = last_line(done)
    assert (done.returncode, told["valid"]) == (0, True), done.stderr
    assert told["acknowledged"]
    [run] = tmp_path.iterdir()
    assert (run / "report.html").exists()
    assert (run / "history.parquet").exists()
    assert namespaces() == before


@pytest.mark.parametrize("workload", ["kv", "watch", "lease", "lock"])
def test_a_short_run_of_the_store_is_valid(tmp_path: Path, workload: str) -> None:
    nemeses = "kill-leader,partition-leader"
    command = jepsen_command(tmp_path, "--workload", workload, "--nemesis", nemeses, "--time-limit", "12")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    told = last_line(done)
    assert (done.returncode, told["valid"]) == (0, True), done.stderr
    assert (told["final_reads"], told["hashes_differ"]) == (5, 0)
    [run] = tmp_path.iterdir()
    assert (run / "operations.jsonl").exists()
    again = subprocess.run([sys.executable, "-m", "jepsen", "check", run], capture_output=True, text=True, check=False)
    assert last_line(again) == told


def sweep_until(gone: set[str], within_s: float) -> None:
    """A killed harness may have been in the middle of a fork: until that child has begun its program, which closes
    what it inherited, it holds the slot."""
    deadline = time.monotonic() + within_s
    while True:
        Slot().release()  # takes a free slot, and sweeps all that nobody holds
        if not gone & set(namespaces()):
            return
        assert time.monotonic() < deadline, f"{gone & set(namespaces())} were not swept"
        time.sleep(0.05)


def test_what_a_killed_run_left_is_swept_by_the_next(tmp_path: Path) -> None:
    before = set(namespaces())
    command = jepsen_command(tmp_path, "--nemesis", "power-cut-one", "--time-limit", "60")
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        while len(made := set(namespaces()) - before) < 5 or not list(tmp_path.glob("*/appends.jsonl")):
            assert time.monotonic() < deadline, "the run did not begin"
            time.sleep(0.1)
    finally:
        running.kill()
        running.wait()
    sweep_until(gone=made, within_s=10)
    mounted = Path("/proc/self/mounts").read_text()
    assert not any(f"/run/dledger-jepsen/{name[3:].partition('-')[0]}/" in mounted for name in made)


def test_an_interrupted_run_leaves_no_host_and_says_why_it_proves_nothing(tmp_path: Path) -> None:
    before = namespaces()
    command = jepsen_command(tmp_path, "--nemesis", "partition-leader", "--time-limit", "60")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        assert any("partition-leader: " in line for line in running.stderr)
        running.send_signal(signal.SIGINT)
        running.communicate()
    assert running.returncode == 130
    assert namespaces() == before
    done = subprocess.run(
        [sys.executable, "-m", "jepsen", "check", *tmp_path.iterdir()], capture_output=True, check=False
    )
    told = json.loads(done.stdout)
    assert (done.returncode, told["valid"]) == (1, False)
    assert "the log was not read at the end" in told["reasons"]


def test_hosts_by_ssh_take_the_same_run(tmp_path: Path) -> None:
    fake = tmp_path / "bin" / "ssh"
    fake.parent.mkdir()
    fake.write_text(FAKE_SSH)
    fake.chmod(0o755)
    path = f"{fake.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    hosts = "ssh:" + ",".join(f"127.0.7.{number}" for number in range(1, 6))
    command = jepsen_command(
        tmp_path / "store", "--nemesis", "kill-one,pause-leader", "--time-limit", "14", "--hosts", hosts
    )
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"PATH": path})
    told = last_line(done)
    assert (done.returncode, told["valid"]) == (0, True), done.stderr
