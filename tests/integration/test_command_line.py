"""The command line against real nodes: ``dledger dev`` and what one does with it."""

from __future__ import annotations

import base64
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

DEADLINE_S = 20.0
DLEDGER = (sys.executable, "-m", "dledger")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("DLEDGER_")}


class Dev:
    """A running ``dledger dev`` of three nodes."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.process = subprocess.Popen(
            [*DLEDGER, "dev", "--nodes", "3", "--port", "0", "--data", str(data)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
        )  # fmt: skip
        assert self.process.stdout is not None
        ready = self.process.stdout.readline()
        assert ready.startswith("ready leader=n"), self.process.communicate()[1]
        self.ready = dict(part.split("=", 1) for part in ready.split()[1:])
        self.endpoints = self.ready["endpoints"]

    def __call__(self, *arguments: str, stdin: bytes = b"", code: int = 0) -> bytes:
        """Runs ``dledger …`` against it; its stdout."""
        environment = {**ENVIRONMENT, "DLEDGER_ENDPOINTS": self.endpoints}
        done = subprocess.run(
            [*DLEDGER, *arguments], input=stdin, check=False, capture_output=True, env=environment, timeout=60
        )
        assert done.returncode == code, done.stderr.decode()
        return done.stdout

    def json(self, *arguments: str, stdin: bytes = b"", code: int = 0) -> dict[str, Any]:
        """The same with ``-o json``; the last line."""
        found: dict[str, Any] = json.loads(self(*arguments, "-o", "json", stdin=stdin, code=code).splitlines()[-1])
        return found

    def pid(self, node_id: str) -> int:
        """From the status; 0 while it cannot be reached."""
        return next(int(node["pid"]) for node in self.json("status")["nodes"] if node["id"] == node_id)

    def all_have(self, index: int) -> bool:
        """By the word of every member of `default`."""
        told = self.json("status", "--group", "default")["nodes"]
        return all(node["commit_index"] >= index for node in told)

    def complaint(self, start: str) -> str:
        """The next line of dev's stderr that begins so."""
        assert self.process.stderr is not None
        return next(line for line in self.process.stderr if line.startswith(start))


def eventually(look: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not look():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return " Z " in Path(f"/proc/{pid}/stat").read_text() if Path(f"/proc/{pid}/stat").exists() else False


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    running = Dev(tmp_path_factory.mktemp("dev"))
    with running.process as process:
        yield running
        process.terminate()


def test_what_is_appended_is_read(dev: Dev) -> None:
    told = dev.json("append", stdin=b"one\n\nthree\r\n\xff")
    first = told["first_index"]
    assert (told["count"], told["last_index"]) == (4, first + 3)
    assert dev("get", f"{first}:{first + 4}") == b"one\n\nthree\r\n\xff\n"
    assert dev("get", f"{first}:{first + 1}", "-o", "raw") == b"one"
    assert dev("get", "-1:") == b"\xff\n"
    entry = dev.json("get", str(first + 2))
    assert (entry["index"], base64.b64decode(entry["value"])) == (first + 2, b"three\r")
    assert dev("tail", "-n", "2") == b"three\r\n\xff\n"


def test_every_node_gives_its_own_copy(dev: Dev) -> None:
    index = dev.json("append", "-d", "everywhere")["last_index"]
    eventually(lambda: dev.all_have(index))
    for node_id in ("n0", "n1", "n2"):
        assert dev("get", str(index), "--node", node_id) == b"everywhere\n"


def test_a_large_input_keeps_its_order(dev: Dev) -> None:
    lines = b"".join(b"%d\n" % number for number in range(100_000))
    told = dev.json("append", stdin=lines)
    assert told["count"] == 100_000
    assert dev("get", f"{told['first_index']}:") == lines


def test_status_and_health_tell_of_three_nodes(dev: Dev) -> None:
    status = dev.json("status", "--group", "default")
    assert status["leader"] in ("n0", "n1", "n2")
    assert [node["id"] for node in status["nodes"]] == ["n0", "n1", "n2"]
    assert all(node["reachable"] and node["durability"] == "fsync" for node in status["nodes"])
    assert dev.json("health")["healthy"] is True


def test_the_leadership_moves_where_it_is_told(dev: Dev) -> None:
    leader = dev.json("status", "--group", "default")["leader"]
    other = next(node_id for node_id in ("n0", "n1", "n2") if node_id != leader)
    assert dev.json("admin", "transfer", "--to", other)["leader"] == other
    dev("admin", "transfer", "--to", "n9", code=5)


def test_the_benchmarks_measure(dev: Dev) -> None:
    appended = dev.json("bench", "append", "--duration", "0.3", "--inflight", "16")
    assert appended["records"] > 0
    assert (appended["errors"], appended["durability"]) == (0, "fsync")
    assert dev.json("bench", "append", "--duration", "0.3", "--batch", "100", "--inflight", "2")["records"] > 0
    got = dev.json("bench", "get", "--duration", "0.3")
    assert (got["errors"], got["inflight"]) == (0, 256)
    assert dev.json("bench", "read", "--duration", "0.3")["records"] > 0
    put = dev.json("bench", "kv", "--duration", "0.3", "--keys", "10", "--gets", "50")
    assert put["records"] > 0
    assert (put["errors"], put["inflight"], put["durability"]) == (0, 64, "fsync")


def test_a_live_nodes_files_verify_and_rot_in_a_copy_is_found(dev: Dev, tmp_path: Path) -> None:
    index = dev.json("append", "-d", "a value to be found")["last_index"]
    eventually(lambda: dev.all_have(index))
    reports = [dev.json("log", "verify", str(dev.data / f"n{i}")) for i in range(3)]
    assert all(report["ok"] and report["last_index"] == index for report in reports)
    assert len({report["chain"] for report in reports}) == 1
    assert f"records={index}" in dev("log", "dump", str(dev.data / "n0"), "--from", str(index)).decode()
    copy = tmp_path / "copy"
    shutil.copytree(dev.data / "n0", copy)
    segment = next(file for file in copy.rglob("*") if file.is_file() and b"a value to be found" in file.read_bytes())
    segment.write_bytes(segment.read_bytes().replace(b"a value to be found", b"a value to be lost!"))
    report = dev.json("log", "verify", str(copy), code=1)
    assert report["ok"] is False
    assert report["bad"]["file"].endswith(segment.name)
    dev("log", "verify", str(tmp_path), code=2)


def test_tail_follows_until_it_is_interrupted(dev: Dev) -> None:
    index = dev.json("append", "-d", "old")["last_index"]
    following = [*DLEDGER, "tail", "-f", "--from", str(index), "--endpoints", dev.endpoints]
    with subprocess.Popen(following, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT) as tail:
        assert tail.stdout is not None
        assert tail.stderr is not None
        assert tail.stdout.readline() == b"old\n"
        dev("append", "-d", "news")
        assert tail.stdout.readline() == b"news\n"
        tail.send_signal(signal.SIGINT)
        assert tail.wait(DEADLINE_S) == 130
        assert tail.stderr.read().strip() == b""


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["get", "99999999"], 5, "there is no record 99999999 yet"),
        (["status", "--group", "other"], 5, "no group 'other'"),
        (["append", "-d", "x" * (100 << 10), "--group", "other"], 5, "no group 'other'"),
        (["status", "--endpoints", "127.0.0.1:9"], 3, "start the nodes"),
        (["append", "-d", "x", "--endpoints", "127.0.0.1:9", "--timeout", "0.5"], 3, "not appended"),
        (["status", "--endpoints", "nonsense"], 2, "is not an address"),
    ],
)
def test_a_refusal_is_one_line_and_its_exit_code_and_where_nobody_answers_another_line_says_what_to_do(
    dev: Dev, arguments: list[str], code: int, words: str
) -> None:
    environment = {**ENVIRONMENT, "DLEDGER_ENDPOINTS": dev.endpoints}
    done = subprocess.run(
        [*DLEDGER, *arguments], check=False, capture_output=True, text=True, env=environment, timeout=30
    )
    assert (done.returncode, done.stdout) == (code, "")
    lines = done.stderr.splitlines()
    assert all(line.startswith("dledger: ") for line in lines)
    assert words in lines[0]
    assert ["dledger dev" in line for line in lines[1:]] == ([True] if code == 3 else [])


def test_a_record_over_the_limit_is_refused(dev: Dev) -> None:
    dev("append", "--raw", stdin=b"x" * ((1 << 20) + 1), code=5)


def test_a_second_node_in_the_same_directory_or_on_the_same_port_is_refused(dev: Dev, tmp_path: Path) -> None:
    pid = dev.pid("n0")
    line = Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
    done = subprocess.run(line, check=False, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert "in use" in done.stderr.splitlines()[-1]
    elsewhere = [str(tmp_path / "n0") if part == str(dev.data / "n0") else part for part in line]
    done = subprocess.run(elsewhere, check=False, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("dledger: ")


def test_a_killed_leader_is_replaced_and_comes_back_by_its_line(dev: Dev) -> None:
    leader = dev.json("status", "--group", "default")["leader"]
    old = dev.pid(leader)
    os.kill(old, signal.SIGKILL)
    assert dev.json("append", "-d", "after the kill")["count"] == 1
    assert dev.json("status", "--group", "default")["leader"] != leader
    dev.complaint(f"{leader} was killed by SIGKILL")
    with subprocess.Popen(shlex.split(dev.complaint("  ")), stderr=subprocess.DEVNULL) as revived:
        eventually(lambda: dev.pid(leader) == revived.pid)
        index = dev.json("append", "-d", "all three")["last_index"]
        eventually(
            lambda: all(node["commit_index"] >= index for node in dev.json("status", "--group", "default")["nodes"])
        )
        assert dev("get", str(index), "--node", leader) == b"all three\n"
        dev.process.send_signal(signal.SIGTERM)
        assert dev.process.wait(DEADLINE_S) == 0
        assert revived.wait(DEADLINE_S) == 0


def test_kill_9_of_dev_ends_its_nodes_and_the_data_stays(tmp_path: Path) -> None:
    first = Dev(tmp_path)
    with first.process:
        first("append", "-d", "kept")
        pids = [first.pid(f"n{i}") for i in range(3)]
        first.process.kill()
    eventually(lambda: all(map(gone, pids)))
    again = Dev(tmp_path)
    with again.process:
        assert again("get", "0") == b"kept\n"
        again.process.send_signal(signal.SIGINT)
        assert again.process.wait(DEADLINE_S) == 0
