"""The writes of a history, as the total history of events is held against them."""

from __future__ import annotations

from collections.abc import Iterator

from dledger.kernels.store.register import Kind
from dledger.kernels.store.timeline import Write
from jepsen.store import bundles, kv
from jepsen.store.journal import Call, History

PREFIXES = (kv.PREFIX, bundles.PREFIX)
"""Of the keys whose writes are all here."""


def writes_of(history: History) -> Iterator[Write]:
    for call in history.of(*kv.OPS):
        if call.op != Kind.GET.value:
            yield _write(
                call, ((call.told["key"], call.told.get("value")),), has_changed=call.told.get("changed", True)
            )
    for call in history.of(bundles.OP):
        changes = call.told["done"] if call.is_ok else call.told["changes"]
        yield _write(call, tuple((key, value) for key, value in changes), has_changed=True)


def _write(call: Call, changes: tuple[tuple[str, str | None], ...], *, has_changed: bool) -> Write:
    revision = call.told["revision"] if call.is_ok and has_changed else 0
    return Write(call.id, call.outcome, revision, changes)
