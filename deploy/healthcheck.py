"""Exits with 0 when the node of this container answers and knows a leader. For the image's HEALTHCHECK.

It asks the node alone: the addresses that clients are told need not be reachable from inside of a container.
"""

import re
import sys
from urllib.request import urlopen

METRICS = "http://127.0.0.1:20913/metrics"

with urlopen(METRICS, timeout=4) as answer:
    metrics = answer.read().decode()
sys.exit(0 if re.search(r"^dledger_has_leader(\{.*\})? 1(\.0)?$", metrics, re.MULTILINE) else 1)
