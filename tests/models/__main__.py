"""``python -m tests.models [ENTRIES]``: the models, in every order of their steps. A longer log takes longer."""

from __future__ import annotations

import sys

from tests.models.checkpoints import Rules, check


def main() -> int:
    entries = int(sys.argv[1]) if len(sys.argv) > 1 else Rules().most_entries
    found = check(Rules(most_entries=entries))
    print(f"checkpoints: {found.states} states, {found.broken or 'all invariants hold'}")
    for step in found.steps:
        print(f"  {step}")
    return 1 if found.broken else 0


if __name__ == "__main__":
    sys.exit(main())
