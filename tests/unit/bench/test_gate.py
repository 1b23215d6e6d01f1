"""Each figure of the gate is the best of ours over the best of the limit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from click.testing import CliRunner

from bench import gate as gating
from bench.gate import FIGURES, MANY, ONE, ROUNDS, Figure, Round
from bench.h2load import WORK as UNARY
from bench.limits import EMPTY_GRPC, FSYNC, PING_PONG, THREE_COPIES
from bench.work import BULK, MeasurementFailed, Outcome


def round_of(ours: float, limit: float) -> Round:
    def outcome(core_s: float) -> Outcome:
        return Outcome(1, 0, 1.0, core_s, core_s, core_s, 0.0)

    return {MANY.name: outcome(ours), EMPTY_GRPC.name: outcome(limit)}


COST = next(figure for figure in FIGURES if figure.name.startswith("256 in flight"))


def test_noise_that_hits_the_limit_alone_does_not_flatter_us() -> None:
    quiet, disturbed = round_of(ours=2.0, limit=1.0), round_of(ours=2.0, limit=8.0)
    assert COST.of([disturbed, quiet]) == 2.0


def test_noise_that_hits_ours_alone_is_forgiven_by_a_better_round() -> None:
    assert COST.of([round_of(ours=9.0, limit=1.0), round_of(ours=2.0, limit=1.0)]) == 2.0


def test_each_figure_is_ours_over_its_own_limit() -> None:
    def outcome(records: int, core_s: tuple[float, float] = (0, 0), p50_ms: float = 0) -> Outcome:
        server_core_s, client_core_s = core_s
        return Outcome(records, 0, 2.0, p50_ms, 9 * p50_ms, server_core_s, client_core_s)

    measured = {
        ONE.name: outcome(1, p50_ms=0.9),
        FSYNC.name: outcome(1, p50_ms=0.1),
        PING_PONG.name: outcome(1, p50_ms=0.1),
        MANY.name: outcome(1_000, (6, 4)),  # 10 ms each
        EMPTY_GRPC.name: outcome(100, (15, 5)),  # 200 ms each
        BULK: outcome(1_000, (3, 1)),  # 4 ms each, 500/s
        THREE_COPIES.name: outcome(4_000, (3, 1)),  # 1 ms each, 2,000/s
        UNARY: outcome(100, (20, 10)),  # 300 ms each
    }
    assert [figure.of([measured]) for figure in FIGURES] == pytest.approx([3, 0.05, 4, 4, 1.5])


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_what_is_usual_passes(figure: Figure) -> None:
    assert figure.usual < figure.most


@pytest.mark.parametrize("failures", [1, ROUNDS])
def test_a_round_that_fails_is_none(failures: int, monkeypatch: pytest.MonkeyPatch) -> None:
    left = [MeasurementFailed("h2load counts more than was done")] * failures

    def measure() -> Round:
        if left:
            raise left.pop()
        return round_of(ours=1.0, limit=1.0)

    monkeypatch.setattr(gating, "FIGURES", (replace(COST, most=2.0),))
    monkeypatch.setattr(gating, "_round", measure)
    ended = CliRunner().invoke(gating.gate)
    assert "a round is none: h2load counts more than was done" in ended.output
    assert (ended.exit_code == 0) == (failures < ROUNDS)
