from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from dledger.cli.config_doc import config_page
from dledger.common.config import Limits, Timings
from dledger.common.config_file import KEYS

CONFIG_MD = Path(__file__).parents[3] / "docs" / "config.md"


def test_the_page_in_the_docs_is_what_the_code_says() -> None:
    assert CONFIG_MD.read_text() == config_page(), "run: python -m dledger.cli.config_doc > docs/config.md"


def test_every_key_has_a_row() -> None:
    tables = {"limits", "timings"}
    keys = {*KEYS} - tables | {each.name for section in (Limits, Timings) for each in fields(section)}
    assert [key for key in sorted(keys) if f"\n| `{key}` |" not in config_page()] == []
