"""These tests are asked for by name (``make test-etcd``), so none is ever skipped: what is missing ends the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.etcd.foreign.programs import foreign_program
from tests.etcd.programs import Lacking, program


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.collectonly or not any(Path(__file__).parent in item.path.parents for item in items):
        return
    try:
        program("etcd")
        program("etcdctl")
        for name in {_foreign_of(each) for each in items} - {""}:
            foreign_program(name)
    except Lacking as why:
        raise pytest.UsageError(f"the tests beside etcd need more than is here: {why}") from why


def _foreign_of(item: pytest.Item) -> str:
    """The foreign program that the test runs; empty: none."""
    callspec = getattr(item, "callspec", None)
    return getattr(callspec.params.get("foreign"), "name", "") if callspec else ""
