"""The outcome of a call with several batches, made of theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.client.results import Acks, AckSpan
from dledger.common.errors import OutcomeUnknown

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence


def joined(whole: asyncio.Future[Acks], spans: Sequence[asyncio.Future[AckSpan]]) -> asyncio.Future[Acks]:
    """Completes ``whole`` with all ``spans``, or with the gravest of their errors; cancelling it cancels them."""
    left = len(spans)

    def settle(_: asyncio.Future[AckSpan]) -> None:
        nonlocal left
        left -= 1
        if left or whole.done():
            return
        failures = [failure for span in spans if not span.cancelled() and (failure := span.exception())]
        if not failures:
            whole.set_result(Acks([span.result() for span in spans]))
            return
        acknowledged = sum(span.result().count for span in spans if not span.cancelled() and not span.exception())
        whole.set_exception(_partial(failures, acknowledged))

    def cancel(call: asyncio.Future[Acks]) -> None:
        if call.cancelled():
            for span in spans:
                span.cancel()

    for span in spans:
        span.add_done_callback(settle)
    whole.add_done_callback(cancel)
    return whole


def _partial(failures: Sequence[BaseException], acknowledged: int) -> BaseException:
    """The error of a call with batches of different outcomes: unknown as soon as one of them is, or one was
    appended."""
    unknown = next((failure for failure in failures if isinstance(failure, OutcomeUnknown)), None)
    if acknowledged and unknown is None:
        text = f"{acknowledged} of the call's records were appended, the rest was not: {failures[0]}"
        return OutcomeUnknown(text, metadata={"acknowledged": str(acknowledged)})
    if unknown is not None:
        unknown.metadata["acknowledged"] = str(acknowledged)
        return unknown
    return failures[0]
