"""What a call ends with when it was not answered with OK."""

from __future__ import annotations

from dledger.rpc.status import StatusCode
from dledger.rpc.wire import Metadata


class RpcFailure(Exception):
    """``was_sent``: whether the server may have begun the call. ``is_local``: no server said it; the connection or this
    client did."""

    def __init__(
        self,
        status: StatusCode,
        details: str,
        metadata: Metadata = (),
        *,
        was_sent: bool = True,
        is_local: bool = False,
    ) -> None:
        super().__init__(f"{status.name}: {details}")
        self.status = status
        self.details = details
        self.metadata = metadata
        self.was_sent = was_sent
        self.is_local = is_local
