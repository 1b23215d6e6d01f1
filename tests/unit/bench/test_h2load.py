"""What h2load says of unary calls, and when that is not believed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bench import unary
from bench.h2load import WORK, h2load
from bench.peers.etcd import Etcd
from bench.work import MeasurementFailed, Outcome, PeerMissing

SAID = "requests: 4 total, 4 started, 4 done, 3 succeeded, 1 failed, 0 errored, 0 timeout"
Fake = Callable[[str], None]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Puts an h2load in the path that says this, and has noted four calls."""

    def put(said: str) -> None:
        path = tmp_path / "h2load"
        calls = "\\n".join(f"1\\t200\\t{latency_us}" for latency_us in (4000, 1000, 3000, 2000))
        path.write_text(
            "#!/bin/sh\n"
            f'for flag; do case "$flag" in --log-file=*) printf \'{calls}\\n\' > "${{flag#--log-file=}}";; esac; done\n'
            f"echo '{said}'\n"
        )
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    return put


def loaded() -> Outcome:
    return h2load(1, "/service/method", b"message", [os.getpid()], 1.0)


def test_its_calls_are_counted_and_put_in_order(fake: Fake) -> None:
    fake(SAID)
    outcome = loaded()
    assert (outcome.records, outcome.errors) == (3, 1)
    assert (outcome.p50_ms, outcome.p99_ms) == (2.0, 3.0)


def test_without_a_word_of_its_requests_nothing_was_measured(fake: Fake) -> None:
    fake("no connection")
    with pytest.raises(MeasurementFailed, match="no connection"):
        loaded()


def test_where_it_is_not_installed_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.peers.api.shutil.which", lambda *_, **__: None)
    with pytest.raises(PeerMissing, match="nghttp2-client"):
        loaded()


@pytest.mark.parametrize(("did", "is_believed"), [(200, True), (150, False)])
def test_calls_that_the_system_did_not_do_are_no_measurement(
    did: int, is_believed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 in the second that counts, and as many in that of the warm-up."""
    counts = iter((0, did))
    monkeypatch.setattr(unary, "h2load", lambda *_, **__: Outcome(100, 0, 1.0, 1.0, 1.0, 0.0, 0.0))
    monkeypatch.setattr(Etcd, "puts", lambda _: next(counts))
    monkeypatch.setattr(Etcd, "require_leader", lambda _: None)
    peer = Etcd()
    peer.leader_port = 1
    if is_believed:
        assert unary.measure(peer, WORK, 1.0).records == 100
    else:
        with pytest.raises(MeasurementFailed, match="counts 100 calls, and etcd did 150"):
            unary.measure(peer, WORK, 1.0)
