"""Log lines that a peer, or a stranger on the port, can cause: at most one a key and interval."""

from __future__ import annotations

import logging
from collections import OrderedDict

INTERVAL_S = 10.0
MAX_KEYS = 256


class LimitedLog:
    """Says the first of its kind at once, holds the rest back for ``INTERVAL_S``, and then says how many there were.

    The ``MAX_KEYS`` keys used last are remembered.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._said: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """Key → when it was last said, and how many were held back since."""

    def say(self, level: int, key: str, now_s: float, event: str, **fields: object) -> None:
        said_s, held_back = self._said.pop(key, (-INTERVAL_S, 0))
        if now_s < said_s + INTERVAL_S:
            self._said[key] = (said_s, held_back + 1)
            return
        self._said[key] = (now_s, 0)
        if len(self._said) > MAX_KEYS:
            self._said.popitem(last=False)
        self._logger.log(level, event, extra=fields | ({"held_back": held_back} if held_back else {}))
