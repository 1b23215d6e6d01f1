"""A session that cannot be is told in a sentence, before Spark gets to it. One on a cluster is reached from there."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import pytest

from dledger.common.errors import ConfigError, Unavailable
from dledger.spark.session import LOOPBACK, local_session, prepare_environment
from tests.spark.clusters import Cluster

WORKERS_SEE = "10.0.0.5"


@pytest.mark.parametrize("master", ["bogus", "local[2", "spark://", "http://master:7077"])
def test_what_is_no_master(master: str) -> None:
    with pytest.raises(ConfigError, match="no Spark master is"):
        local_session("none", master=master)


def test_a_master_that_nobody_is() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with pytest.raises(Unavailable, match=f"no Spark master answers .127.0.0.1:{port}: Connection refused"):
        local_session("none", master=f"spark://127.0.0.1:{port}")


def test_the_driver_is_where_workers_of_other_machines_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Connection:
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None: ...

        def getsockname(self) -> tuple[str, int]:
            return WORKERS_SEE, 50_000

    asked: list[Any] = []

    def connect(address: tuple[str, int], _: float) -> Connection:
        asked.append(address)
        if len(asked) == 1:
            raise ConnectionRefusedError
        return Connection()

    class Stop(Exception):
        pass

    def stop(address: str | None) -> None:
        raise Stop(address)

    monkeypatch.setattr(socket, "create_connection", connect)
    monkeypatch.setattr("dledger.spark.session.prepare_environment", stop)
    with pytest.raises(Stop, match=WORKERS_SEE):
        local_session("none", master="spark://one:7077,two:7078")
    assert asked == [("one", 7077), ("two", 7078)]
    with pytest.raises(Stop, match=LOOPBACK):
        local_session("none", master="local[2]")
    with pytest.raises(Stop, match="None"):  # where the manager is, files of its own say
        local_session("none", master="yarn")


def test_a_java_home_without_a_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=f"JAVA_HOME is {tmp_path}, which has no bin/java"):
        prepare_environment()


def test_a_java_that_spark_does_not_start_in(cluster: Cluster, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\nexit 1\n")
    java.chmod(0o755)
    command = (sys.executable, "-m", "dledger", "spark", "stats", "--endpoints", cluster.endpoints)
    environment = {**os.environ, "JAVA_HOME": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert done.returncode == 2
    assert f"Spark does not start with the master local[*,3] and the Java of JAVA_HOME ({tmp_path}): " in done.stderr
    assert "Traceback" not in done.stderr
