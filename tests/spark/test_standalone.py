"""A Spark cluster as processes of this machine: a master and two workers, and a job submitted to them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyspark
import pytest

from dledger.spark.session import prepare_environment
from tests.spark.clusters import Cluster

PATIENCE_S = 400.0
POLL_S = 0.1
CLASS = "org.apache.spark.deploy"
RECORDS = 10_000


class Standalone(NamedTuple):
    """Where it listens, and what its workers say."""

    url: str
    worker_logs: list[Path]


def said(log_file: Path, pattern: str) -> re.Match[str]:
    """What a process wrote, once it has."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = re.search(pattern, log_file.read_text())
        if found:
            return found
        assert time.monotonic() < deadline, f"{log_file} does not say {pattern}: {log_file.read_text()[-2000:]}"
        time.sleep(POLL_S)  # another process cannot be awaited: it is asked


@contextmanager
def started(directory: Path, name: str, *arguments: str) -> Iterator[Path]:
    """One of Spark's own daemons; its log."""
    log_file = directory / f"{name}.log"
    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    environment = {**os.environ, "SPARK_DAEMON_MEMORY": "256m", "SPARK_NO_DAEMONIZE": "1"}
    with log_file.open("wb") as log:
        process = subprocess.Popen([program, *arguments], stdout=log, stderr=log, env=environment)
    try:
        yield log_file
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[Standalone]:
    prepare_environment()
    here = ("--host", "127.0.0.1", "--webui-port", "0")
    with started(tmp_path, "master", f"{CLASS}.master.Master", *here, "--port", "0") as master_log:
        url = said(master_log, r"Starting Spark master at (spark://\S+)")[1]
        worker = (f"{CLASS}.worker.Worker", *here, "--cores", "1", "--memory", "1g", "--work-dir")
        with (
            started(tmp_path, "worker0", *worker, str(tmp_path / "w0"), url) as log0,
            started(tmp_path, "worker1", *worker, str(tmp_path / "w1"), url) as log1,
        ):
            logs = [log0, log1]
            for log_file in logs:
                said(log_file, "Successfully registered with master")
            yield Standalone(url, logs)


def test_a_job_runs_on_a_cluster(standalone: Standalone, cluster: Cluster, tmp_path: Path) -> None:
    cluster.append([b"%d" % number for number in range(RECORDS)])
    command = (sys.executable, "-m", "dledger", "spark", "archive", str(tmp_path / "out"), "-o", "json")
    where = ("--master", standalone.url, "--endpoints", cluster.endpoints, "--timeout", "60")
    done = subprocess.run([*command, *where], capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    assert "log4j" not in done.stderr
    found = json.loads(done.stdout)
    assert (found["records"], found["missing"], found["doubled"], found["differing"]) == (RECORDS, 0, 0, 0)
    assert all("Asked to launch executor" in log.read_text() for log in standalone.worker_logs)
