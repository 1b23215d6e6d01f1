"""The seed of the clusters that tests build.

A test must hold under any seed: the draws decide who is elected, who answers first and how long a sync takes, and any
change of the product shifts them. ``DLEDGER_SCENARIO_SEED=2 pytest tests/unit/group`` runs the same tests with other
draws.
"""

from __future__ import annotations

import os

SCENARIO_SEED = int(os.environ.get("DLEDGER_SCENARIO_SEED", "1"))
