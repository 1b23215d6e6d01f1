"""One change on its way: what is known of its outcome, and what its caller is told.

::

    queued ──written──▶ sent ──answer──▶ settled
       │ its time runs out:    │ its time runs out, or its session ended: OutcomeUnknown
       │ DeadlineExceeded      │ the stream broke: written again, under the same session and request
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dledger.client.store.refusals import of_submit
from dledger.common.errors import Code, DeadlineExceeded, DLedgerError, OutcomeUnknown, Unavailable
from dledger.rpc.client.retry import PASSING
from dledger.rpc.client.verdict import LEAVE_DOUBT
from dledger.v1 import store_service_pb2 as pb

if TYPE_CHECKING:
    import asyncio

_LEAVES_DOUBT = LEAVE_DOUBT | {Code.SESSION_EXPIRED}


class Submission:
    """Invariant: ``session`` and ``number`` never change while an attempt may have been carried out."""

    __slots__ = ("_last", "answer", "deadline_s", "doubt", "is_out", "kind", "message", "number", "session")

    def __init__(self, kind: str, message: Any, answer: asyncio.Future[Any], deadline_s: float) -> None:
        """``kind``: the field of SubmitRequest and of SubmitResponse."""
        self.kind = kind
        self.message = message
        self.answer = answer
        self.deadline_s = deadline_s
        self.session = 0
        self.number = 0
        self.is_out = False
        """Written to the present stream, and not answered."""
        self.doubt: DLedgerError | None = None
        """Why an earlier attempt may have been carried out, or may be yet; None: none was."""
        self._last: DLedgerError | None = None

    @property
    def key(self) -> tuple[int, int]:
        return self.session, self.number

    def assign(self, session: int, number: int) -> None:
        assert not self.is_doubtful, "the store may know it by its session and number"
        self.session, self.number = session, number

    def wire(self, acknowledged: int) -> pb.SubmitRequest:
        """To be written now."""
        self.is_out = True
        request = pb.SubmitRequest(session=self.session, request=self.number, acknowledged=acknowledged)
        of_kind = getattr(request, self.kind)
        of_kind.CopyFrom(self.message)
        of_kind.SetInParent()
        return request

    # What became of an attempt -----------------------------------------------------------------------------------

    def take(self, response: pb.SubmitResponse) -> DLedgerError | None:
        """Settles it by its answer, or by a refusal that will not pass. Returns the refusal that is no answer."""
        self.is_out = False
        if response.WhichOneof("kind") != "refusal":
            self.resolve(getattr(response, self.kind))
            return None
        refusal = of_submit(response.refusal)
        if response.refusal.is_answer:
            self.fail(refusal)
            return None
        self._refused(refusal)
        return refusal

    def _refused(self, refusal: DLedgerError) -> None:
        """The node asked did not carry it out, or does not know whether it did."""
        self._last = refusal
        if refusal.code in _LEAVES_DOUBT and refusal.metadata.get("applied") != "no":
            self.doubt = refusal
        is_asked_again = refusal.code in PASSING or refusal.code is Code.SESSION_EXPIRED
        if not is_asked_again:
            self.fail(self.unknown(refusal) if self.doubt is not None else refusal)
        elif refusal.code is Code.SESSION_EXPIRED and self.doubt is not None:
            self.fail(self.unknown(refusal))

    def lost(self, end: DLedgerError, *, was_sent: bool) -> None:
        """The stream ended that it was written to."""
        self._last, self.is_out = end, False
        if was_sent:
            self.doubt = end

    # Its end -----------------------------------------------------------------------------------------------------

    @property
    def is_settled(self) -> bool:
        return self.answer.done()

    @property
    def is_doubtful(self) -> bool:
        """Whether it may have been carried out, or may be yet."""
        return self.doubt is not None or self.is_out

    def resolve(self, answer: Any) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)

    def fail(self, refusal: DLedgerError) -> None:
        if not self.answer.done():
            self.answer.set_exception(refusal)

    def expire(self, timeout_text: str, reason: DLedgerError | None) -> None:
        """Its time is up. ``reason``: why nobody could be asked, if this is known."""
        why = self._last or reason
        if self.is_doubtful:
            told = f"{timeout_text} ({why})" if why is not None else timeout_text
            self.fail(OutcomeUnknown(f"{told}: it may have been carried out; read the key before doing it again"))
        elif isinstance(why, Unavailable):
            self.fail(Unavailable(f"nothing was changed, {timeout_text}: {why}", code=why.code))
        else:
            self.fail(DeadlineExceeded(f"nothing was changed, {timeout_text}" + (f": {why}" if why else "")))

    def end(self, reason: DLedgerError) -> None:
        """The client takes no part any more."""
        self.fail(self.unknown(reason) if self.is_doubtful else reason.copy())

    def unknown(self, reason: DLedgerError) -> OutcomeUnknown:
        text = "it may have been carried out; read the key before doing it again"
        code = Code.SESSION_EXPIRED if reason.code is Code.SESSION_EXPIRED else None
        return OutcomeUnknown(f"no answer says what became of the request ({reason}): {text}", code=code)
