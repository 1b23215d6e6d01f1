"""The pages of docs/clients."""

from __future__ import annotations

import pytest

from tests.clients.programs import PAGES, PROGRAMS, Program


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.name)
def test_a_page_shows_its_program_as_it_is(program: Program) -> None:
    assert program.shown == (PAGES / program.source).read_text()
