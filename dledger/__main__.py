"""``python -m dledger``: the command line."""

from __future__ import annotations

from dledger.cli.start import main

main()
