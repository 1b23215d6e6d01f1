"""One Spark session for all tests, in a Java that nobody installed: none is on their PATH."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dledger.spark.session import BRIEF_JAVA, local_session
from tests.spark.clusters import Cluster, running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEST_TIMEOUT_S = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/spark" in str(item.path):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S))
            # Py4J leaves its sockets to the collector.
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))


@pytest.fixture(scope="session", autouse=True)
def no_java_on_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Every program of PATH but java."""
    shadow = tmp_path_factory.mktemp("bin")
    for directory in reversed(os.environ["PATH"].split(os.pathsep)):
        for program in Path(directory).iterdir() if Path(directory).is_dir() else ():
            if not program.name.startswith("java"):
                (shadow / program.name).unlink(missing_ok=True)
                (shadow / program.name).symlink_to(program)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(shadow))
        patch.delenv("JAVA_HOME", raising=False)
        patch.setenv("JAVA_TOOL_OPTIONS", BRIEF_JAVA)
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    conf = {"spark.sql.shuffle.partitions": "2", "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    session = local_session("tests", master="local[2,3]", conf=conf)
    yield session
    session.stop()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """One node: what reads and writes mean does not depend on how many there are."""
    with running(tmp_path / "nodes") as started:
        yield started
