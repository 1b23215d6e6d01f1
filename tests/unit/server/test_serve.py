from __future__ import annotations

import logging

import pytest

from dledger.server.grpc_port import says_trouble


class ExecuteBatchError(Exception):
    """As gRPC's own, which cannot be imported."""


@pytest.mark.parametrize(("failure", "is_trouble"), [(ExecuteBatchError(), False), (ValueError(), True), (None, True)])
def test_a_client_that_went_away_is_no_trouble(failure: Exception | None, is_trouble: bool) -> None:
    exc_info = (type(failure), failure, None) if failure is not None else None
    record = logging.LogRecord("grpc._cython.cygrpc", logging.ERROR, __file__, 1, "Unexpected", (), exc_info)
    assert says_trouble(record) is is_trouble
