"""The webhook that Alertmanager sends to: what was told, and when it arrived."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Identity = tuple[str, str]


@dataclass(slots=True)
class Told:
    """One alert of one queue.

    Args:
        labels: as they arrived.
        annotations: as they arrived.
        fired_at: wall clock at which the first `firing` arrived, seconds since 1970.
        resolved_at: wall clock at which the last `resolved` arrived; None before the first.
        firings: times it began to fire.
        firing: whether it fires now.
    """

    labels: dict[str, str]
    annotations: dict[str, str]
    fired_at: float
    resolved_at: float | None = None
    firings: int = 1
    firing: bool = True


@dataclass(slots=True)
class Inbox:
    """All that was told, by alert name and queue ("" for an alert without one)."""

    told: dict[Identity, Told] = field(default_factory=dict)

    def take(self, alert: Mapping[str, Any], now: float) -> None:
        """Note one alert of a webhook message; a repetition changes nothing."""
        labels: dict[str, str] = alert["labels"]
        identity = labels["alertname"].removeprefix("LeaseQueue"), labels.get("queue", "")
        known = self.told.get(identity)
        if alert["status"] == "resolved":
            if known is not None and known.firing:
                known.resolved_at, known.firing = now, False
        elif known is None:
            self.told[identity] = Told(labels, alert["annotations"], now)
        elif not known.firing:
            known.firing, known.firings = True, known.firings + 1

    def fired(self, identity: Identity) -> bool:
        """Whether it was told as firing, now or before."""
        return identity in self.told

    def resolved(self, identity: Identity) -> bool:
        """Whether it was told as firing and then as resolved, and does not fire again."""
        known = self.told.get(identity)
        return known is not None and not known.firing


class Receiver:
    """An HTTP server on `address`, in a thread of its own, that fills an Inbox. Use as a context manager."""

    def __init__(self, address: str) -> None:
        self.inbox = Inbox()
        inbox = self.inbox

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                for alert in body["alerts"]:
                    inbox.take(alert, time.time())
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing: the run tells its own story."""

        self._server = ThreadingHTTPServer((address, 0), Handler)
        self.url = f"http://{address}:{self._server.server_port}/"
        self._thread = threading.Thread(target=self._server.serve_forever, name="webhook", daemon=True)

    def __enter__(self) -> Receiver:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
