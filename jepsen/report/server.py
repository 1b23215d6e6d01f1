"""``python -m jepsen serve``: all runs in a store, newest first, over HTTP."""

from __future__ import annotations

import json
from functools import partial
from html import escape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

from jepsen.report.page import STYLE


def index_page(store: Path) -> str:
    """A line for each run that has a verdict."""
    rows = "".join(_row(file) for file in sorted(store.glob("*/verdict.json"), reverse=True))
    head = "".join(f"<th>{name}</th>" for name in ("run", "verdict", "acknowledged", "lost", "availability", "faults"))
    body = (
        f"<table><tr>{head}</tr>{rows}</table>" if rows else "<p>There is no run yet: python -m jepsen test --help</p>"
    )
    return f'<!doctype html><meta charset="utf-8"><title>runs</title><style>{STYLE}</style><h1>Runs</h1>{body}'


def _row(file: Path) -> str:
    told = json.loads(file.read_text(encoding="utf-8"))
    name = escape(file.parent.name)
    kind, word = ("valid", "valid") if told["valid"] else ("invalid", "not valid")
    return (
        f'<tr><td><a href="{name}/report.html">{name}</a></td><td><span class="verdict {kind}">{word}</span></td>'
        f'<td class="number">{told["acknowledged"]:,}</td><td class="number">{told.get("lost", "")}</td>'
        f'<td class="number">{told["availability"]}</td><td class="number">{told["faults"]}</td></tr>'
    )


class _Handler(SimpleHTTPRequestHandler):
    extensions_map: ClassVar[dict[str, str]] = {  # type: ignore[misc]  # read of the class
        **SimpleHTTPRequestHandler.extensions_map,
        ".log": "text/plain; charset=utf-8",
        ".jsonl": "text/plain; charset=utf-8",
    }
    """What a browser is to show, and not to save."""

    def do_GET(self) -> None:
        if urlsplit(self.path).path != "/":
            super().do_GET()
            return
        page = index_page(Path(self.directory)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *arguments: object) -> None:
        """Nobody needs to hear of every request."""


def make_server(store: Path, host: str, port: int) -> ThreadingHTTPServer:
    """Serves ``store`` once ``serve_forever`` is called. Raises OSError when the port is taken."""
    return ThreadingHTTPServer((host, port), partial(_Handler, directory=str(store)))
