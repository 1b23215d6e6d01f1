"""Answers that a handler can make twice: the server need not keep them for a slow client."""

from __future__ import annotations

from abc import ABC, abstractmethod


class Remade(ABC):
    """An answer of a stream. A handler can make it anew, byte for byte."""

    @abstractmethod
    def drop(self) -> None:
        """The server has encoded it, and does not need its parts until ``restore``."""

    @abstractmethod
    async def restore(self) -> None:
        """Makes it anew, as before ``drop``. Raises anything if the handler cannot."""
