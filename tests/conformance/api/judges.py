from __future__ import annotations
from tests.conformance.judging import Case
async def judge() -> list[Case]:
    return []
