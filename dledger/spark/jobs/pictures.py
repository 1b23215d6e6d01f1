"""A picture as OUT.png, and as OUT.html with its numbers beside it."""

from __future__ import annotations

import base64
import html
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOTS_PER_INCH = 120


def write(
    out: Path, title: str, numbers: dict[str, Any], draw: Callable[[Figure], None], *, inches: tuple[float, float]
) -> dict[str, Any]:
    """``draw`` fills an empty figure under ``title``; returns the numbers, and the paths of the files."""
    from matplotlib.figure import Figure  # noqa: PLC0415  # slow to import

    figure = Figure(figsize=inches, layout="constrained")
    figure.suptitle(title)
    draw(figure)
    content = BytesIO()
    figure.savefig(content, format="png", dpi=DOTS_PER_INCH)
    out.parent.mkdir(parents=True, exist_ok=True)
    stem = out.with_suffix("") if out.suffix in (".png", ".html") else out
    png, page = (stem.with_name(stem.name + suffix) for suffix in (".png", ".html"))
    png.write_bytes(content.getvalue())
    page.write_text(_page(content.getvalue(), numbers, title), encoding="utf-8")
    return {**numbers, "png": str(png), "html": str(page)}


def _page(picture: bytes, numbers: dict[str, Any], title: str) -> str:
    rows = "".join(f"<tr><td>{html.escape(key)}<td>{html.escape(str(value))}" for key, value in numbers.items())
    return (
        f"<!doctype html><meta charset=utf-8><title>{html.escape(title)}</title>"
        "<style>body{font:16px system-ui;margin:2em auto;max-width:60em}img{width:100%}td{padding:.2em 1em}</style>"
        f"<h1>{html.escape(title)}</h1><img alt='the numbers below, over time' src='data:image/png;base64,"
        f"{base64.b64encode(picture).decode()}'><table>{rows}</table>\n"
    )
