"""Answers that need not be kept while a client does not take them."""

from __future__ import annotations

from abc import ABC, abstractmethod


class Remade(ABC):
    """An answer of a stream that can be made anew, byte for byte."""

    @abstractmethod
    def drop(self) -> None:
        """It is encoded: what it holds is not needed, until ``restore``."""

    @abstractmethod
    async def restore(self) -> None:
        """It is as it was before ``drop``. May raise anything where that cannot be."""
