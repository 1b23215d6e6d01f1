"""Errors for a client used in the wrong way: they say how to write it. Python would only name the missing part."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

if not TYPE_CHECKING:  # to a type checker the wrong way is an error already

    class AsyncClient:
        """Entered with ``async with``."""

        def __await__(self) -> NoReturn:
            raise TypeError(f"await {_name(self)} is too much: write `async with {_made_by(self)}(…) as …:`")

        def __enter__(self) -> NoReturn:
            made_by = _made_by(self)
            text = f"write `async with {made_by}(…) as …:`, or without asyncio `with {made_by}_blocking(…) as …:`"
            raise TypeError(f"{_name(self)} is for asyncio: {text}")

        def __exit__(self, *_: object) -> None:
            """Python looks for both before it calls either."""

    class BlockingClient:
        """Entered with ``with``."""

        async def __aenter__(self) -> NoReturn:
            made_by = _made_by(self)
            text = f"write `with {made_by}(…) as …:`, or `async with {made_by.removesuffix('_blocking')}(…) as …:`"
            raise TypeError(f"{_name(self)} blocks: {text}")

        async def __aexit__(self, *_: object) -> None:
            """Python looks for both before it calls either."""

    _MADE_BY = {
        "Log": "dledger.connect",
        "Cluster": "dledger.connect_cluster",
        "BlockingLog": "dledger.connect_blocking",
        "BlockingCluster": "dledger.connect_cluster_blocking",
    }

    def _name(client: object) -> str:
        return f"a {type(client).__name__}"

    def _made_by(client: object) -> str:
        return _MADE_BY[type(client).__name__]

else:

    class AsyncClient:
        """Entered with ``async with``."""

    class BlockingClient:
        """Entered with ``with``."""
