"""For all tests: Ctrl-C means what it means in a terminal, to them and to what they start."""

from __future__ import annotations

import signal

from hypothesis import settings

# A shell without job control has what it starts in the background ignore it, and children inherit that: tests that
# send it would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup has it ignored

# How long an example takes says more of what else the machine does than of the code.
settings.register_profile("dledger", deadline=None)
settings.load_profile("dledger")
