"""What is written down of an operation is read again, also when the harness was killed meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from dledger.common.errors import ConfigError
from dledger.kernels.history import FAIL, INFO, OK
from dledger.kernels.store.register import FOREVER
from jepsen.store.client import Asked
from jepsen.store.journal import FILE, Journal, read_history
from jepsen.store.outcomes import Answered, Refused, Unknown


def test_operations_have_their_ends_and_notes_stand_by_themselves(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        first, second, third, _ = (journal.invoke(3, "put", key="a", value=str(number)) for number in range(4))
        journal.complete(first, Asked("n0", Answered(None)), revision=2)
        journal.complete(second, Asked("n1", Refused("never sent")), revision=3)
        journal.complete(third, Asked("n1", Unknown("late")))
        journal.note("copy", node="n0")
        assert (journal.acknowledged, journal.failed, journal.unknown) == (1, 1, 1)
    history = read_history(tmp_path)
    assert [call.outcome for call in history.calls] == [OK, FAIL, INFO, INFO]
    assert [call.completed_ns == FOREVER for call in history.calls] == [False, False, False, True]
    assert history.calls[0].told == {"key": "a", "value": "0", "node": "n0", "revision": 2}
    assert "revision" not in history.calls[1].told
    assert [note.told for note in history.about("copy")] == [{"node": "n0"}]


def test_a_line_that_was_cut_short_is_left_out(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.invoke(3, "put", key="a")
    with (tmp_path / FILE).open("a") as file:
        file.write('{"type":"ok","id":1,"n')
    [call] = read_history(tmp_path).calls
    assert (call.outcome, call.completed_ns) == (INFO, FOREVER)


@pytest.mark.parametrize("line", ["{", '{"type":"ok","id":7,"ns":1}', '{"type":"maybe","id":1,"ns":1}'])
def test_what_is_no_history_is_refused(tmp_path: Path, line: str) -> None:
    with Journal(tmp_path) as journal:
        journal.invoke(3, "put", key="a")
    with (tmp_path / FILE).open("a") as file:
        file.write(line + "\n")
    with pytest.raises(ConfigError, match="is not a history of the store"):
        read_history(tmp_path)
