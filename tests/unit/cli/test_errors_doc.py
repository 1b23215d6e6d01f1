from __future__ import annotations

from pathlib import Path

from dledger.cli.errors_doc import errors_table
from dledger.common.errors import CODES, Code

ERRORS_MD = Path(__file__).parents[3] / "docs" / "errors.md"


def test_the_table_in_the_docs_is_the_table_in_the_code() -> None:
    assert ERRORS_MD.read_text() == errors_table(), "run: python -m dledger.cli.errors_doc > docs/errors.md"


def test_every_code_has_a_row() -> None:
    assert set(CODES) == set(Code)
