"""What LogService makes of the replica's answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from dledger.common.errors import Code, DLedgerError, error
from dledger.server.log_service import LogService
from dledger.v1 import log_pb2


class OneRefusal:
    """A reader that refuses every record in the same way."""

    def __init__(self, refusal: DLedgerError) -> None:
        self._refusal = refusal

    async def read_point(self, _consistency: object) -> Any:
        return SimpleNamespace(commit_index=99)

    async def get_many(self, indexes: list[int], _point: object) -> list[DLedgerError]:
        return [self._refusal for _ in indexes]


def found(reader: OneRefusal) -> Any:
    async def find(_group: str) -> Any:
        return SimpleNamespace(reader=reader)

    return find


async def test_a_refusal_within_a_stream_of_gets_carries_the_metadata_of_one_that_ends_a_call() -> None:
    refusal = error(Code.INDEX_LESS_THAN_LOCAL_BEGIN, "trimmed", first_index=50, commit_index=99)
    node: Any = SimpleNamespace(find=found(OneRefusal(refusal)), forwarder=None)
    answer = await LogService(node)._get_many("default", log_pb2.GetStreamRequest(indexes=[10]))
    [result] = answer.results
    assert result.error.reason == "INDEX_LESS_THAN_LOCAL_BEGIN"
    assert result.error.metadata == {"first_index": "50", "commit_index": "99"}
