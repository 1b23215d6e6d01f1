"""``dledger spark`` where Spark is not installed."""

from __future__ import annotations

import pytest

from dledger.cli import spark_session
from dledger.cli.main import cli
from dledger.common.errors import ConfigError


@pytest.mark.parametrize("command", [["archive", "out"], ["audit", "."], ["stats"], ["plot", "out"], ["demo"]])
def test_without_the_extra_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    monkeypatch.setattr(spark_session, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"pip install 'dledger\[spark\]'"):
        cli.main(args=["spark", *command], standalone_mode=False)
