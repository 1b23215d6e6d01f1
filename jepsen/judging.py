"""The verdict of a run, whatever its load was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jepsen import analysis
from jepsen.store import analysis as store_analysis
from jepsen.store.journal import FILE


def judge(history: Path) -> dict[str, Any]:
    """As ``analysis.judge``; of a run of the store, its directory, or the history in it. Raises CONFIG_ERROR."""
    run_dir = history.parent if history.name == FILE else history
    if (run_dir / FILE).exists():
        return store_analysis.judge(run_dir)
    return analysis.judge(history)
