"""What a program of ours is made of is found by reading it."""

from __future__ import annotations

from tests.support.imports import imported
from tests.support.sources import ROOT


def test_a_module_a_name_in_one_and_the_packages_on_the_way_are_found_however_far() -> None:
    found = imported([ROOT / "tests" / "crashes" / "explore.py"])
    names = {str(file.relative_to(ROOT)) for file in found}
    assert {"tests/simulation/__init__.py", "tests/simulation/platter.py", "tests/crashes/medium.py"} <= names
    assert {"dledger/__init__.py", "dledger/log/file_log.py", "dledger/common/errors.py"} <= names
    assert all(file.is_file() for file in found)


def test_what_nobody_imports_is_not_found() -> None:
    assert ROOT / "dledger" / "server" / "serve.py" not in imported([ROOT / "tests" / "simulation" / "run.py"])
