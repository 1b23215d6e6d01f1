from __future__ import annotations

import pytest

from dledger.client.wire import APPEND_STREAM, encode_append
from dledger.v1 import log_pb2


@pytest.mark.parametrize("size_bytes", [1, 127, 128, 16_383, 16_384, 1 << 21])
def test_the_encoding_by_hand_is_protobufs_own(size_bytes: int) -> None:
    head = log_pb2.AppendStreamRequest(group="default", producer_id=7, base_sequence=300, count=2, body_crc=5)
    body = b"\x07" * size_bytes
    whole = log_pb2.AppendStreamRequest()
    whole.CopyFrom(head)
    whole.body = body
    assert encode_append(head, body) == whole.SerializeToString()


def test_the_method_is_the_services() -> None:
    service = log_pb2.DESCRIPTOR.services_by_name["LogService"]
    assert f"/{service.full_name}/{service.methods_by_name['AppendStream'].name}" == APPEND_STREAM
    assert max(log_pb2.AppendStreamRequest.DESCRIPTOR.fields_by_number) == 7, "the body must stay the last field"
