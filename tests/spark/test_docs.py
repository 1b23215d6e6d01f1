"""The first look of docs/spark.md, as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.clusters import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GUIDE = Path(__file__).parents[2] / "docs" / "spark.md"
ADDRESS = "127.0.0.1:20912"


def test_the_first_look_works(
    spark: SparkSession, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.append([b"%d" % number for number in range(1, 1_001)])
    found = re.search(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert found is not None
    assert ADDRESS in found[1]
    code = found[1].replace(ADDRESS, cluster.endpoints).replace('"lake"', f'"{tmp_path}/lake"')
    monkeypatch.chdir(tmp_path)
    exec(code.replace('"check"', f'"{tmp_path}/check"'), {})  # the guide's own words
    assert spark.read.parquet(str(tmp_path / "lake")).count() == 2 * 1_000
