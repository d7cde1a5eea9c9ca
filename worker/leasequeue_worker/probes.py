"""HTTP for the kubelet and Prometheus: /healthz, /readyz, /metrics, in a thread of its own.

/healthz says that claims, renewals and completions make progress. It hangs neither on the database (their waits are bounded, and a
failed turn is a turn) nor on the handler. /readyz says that the worker is started; it turns off when the worker is cordoned and holds
nothing, so that the ReplicaSet removes this pod first, and while it drains.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from leasequeue.process.logs import get

# Longer than any bounded wait of those threads: connecting to several hosts, a call cut at its limit, a back-off.
STALLED_S = 90.0
CLIENT_TIMEOUT_S = 5.0


class Beats:
    """When each thread last made progress.

    Args:
        stalled_s: age at which a beat counts as stopped, seconds.
    """

    def __init__(self, stalled_s: float = STALLED_S) -> None:
        self._stalled_s = stalled_s
        self._last: dict[str, float] = {}

    def mark(self, name: str) -> Callable[[], None]:
        """A function that `name` calls at each turn; counts from now."""

        def beat() -> None:
            self._last[name] = time.monotonic()

        beat()
        return beat

    def forget(self, name: str) -> None:
        """`name` ended on purpose."""
        self._last.pop(name, None)

    def stalled(self, now: float) -> list[str]:
        """Threads without progress."""
        return [name for name, at in list(self._last.items()) if now - at > self._stalled_s]


class Server(ThreadingHTTPServer):
    """A server for which a client that went away, as a kubelet does on a full node, is no error."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print a traceback unless the client has gone."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class Probes:
    """The HTTP server.

    Args:
        port: TCP port; 0 serves nothing.
        beats: progress of the threads.
        why_not_ready: reason for not being ready, or empty.
        registry: metrics.
    """

    def __init__(self, port: int, beats: Beats, why_not_ready: Callable[[], str], registry: CollectorRegistry) -> None:
        self._port, self._beats, self._why_not_ready, self._registry = port, beats, why_not_ready, registry
        self._server: Server | None = None

    def start(self) -> None:
        """Serve. A port that is taken is logged, not fatal: by hand several workers share a host."""
        if not self._port:
            return
        try:
            self._server = Server(("", self._port), self._handler_class())
        except OSError as ex:
            get().error("probes_unavailable", port=self._port, error=ex.strerror, next="choose another --http-port, or 0")
            return
        threading.Thread(target=self._server.serve_forever, name="probes", daemon=True).start()

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """Status, content type and body of a path."""
        if path == "/healthz":
            stalled = self._beats.stalled(time.monotonic())
            return (500, "text/plain", f"stalled: {', '.join(stalled)}\n".encode()) if stalled else (200, "text/plain", b"ok\n")
        if path == "/readyz":
            reason = self._why_not_ready()
            return (503, "text/plain", f"{reason}\n".encode()) if reason else (200, "text/plain", b"ok\n")
        if path == "/metrics":
            return 200, CONTENT_TYPE_LATEST, generate_latest(self._registry)
        return 404, "text/plain", b"try /healthz, /readyz or /metrics\n"

    def _handler_class(self) -> type[BaseHTTPRequestHandler]:
        answer = self.answer

        class Handler(BaseHTTPRequestHandler):
            timeout = CLIENT_TIMEOUT_S

            def do_GET(self) -> None:
                status, kind, body = answer(self.path.partition("?")[0])
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_args: Any) -> None:
                """Probes come every few seconds: no line each."""

        return Handler
