"""/healthz, /readyz and /metrics.

Liveness looks at the operator's own loops alone: a database or API server that is down is no reason to restart it. Readiness
says that the queues have been listed and the watches run.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

STOP_S = 2.0


class Watchdog:
    """Loops that must go round.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._limits: dict[str, float] = {}
        self._beats: dict[str, float] = {}

    def expect(self, loop: str, within_s: float) -> None:
        """From now on `loop` must beat at least every `within_s` seconds."""
        self._limits[loop], self._beats[loop] = within_s, self._clock()

    def beat(self, loop: str) -> None:
        """`loop` went round."""
        self._beats[loop] = self._clock()

    def stuck(self) -> list[str]:
        """Loops that did not go round in time."""
        now = self._clock()
        return [name for name, limit_s in self._limits.items() if now - self._beats[name] > limit_s]


class HealthServer:
    """The HTTP server.

    Args:
        port: 0 takes a free one.
        watchdog: for /healthz.
        ready: for /readyz; gives what is not ready yet, empty when all is.
        note: what the operator does without; text of a good /readyz.
        registry: for /metrics.
    """

    def __init__(
        self,
        port: int,
        watchdog: Watchdog,
        ready: Callable[[], str],
        registry: CollectorRegistry,
        note: Callable[[], str] = lambda: "",
    ) -> None:
        self.port = port
        self._watchdog, self._ready, self._registry, self._note = watchdog, ready, registry, note
        app = web.Application()
        app.add_routes([
            web.get("/healthz", self._healthz), web.get("/readyz", self._readyz), web.get("/metrics", self._metrics),
        ])  # fmt: skip
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=STOP_S)

    async def start(self) -> None:
        """Listen. Raises OSError where the port is taken."""
        await self._runner.setup()
        # None: all addresses, IPv4 and IPv6, whichever the cluster has.
        site = web.TCPSite(self._runner, None, self.port)
        await site.start()
        # With port 0 each address family got a port of its own.
        ports = {":" in str(address[0]): int(address[1]) for address in self._runner.addresses}
        self.port = ports.get(False, ports.get(True, self.port))

    async def stop(self) -> None:
        """Stop listening."""
        await self._runner.cleanup()

    async def _healthz(self, _request: web.Request) -> web.Response:
        stuck = self._watchdog.stuck()
        return _answer("stuck: " + ", ".join(stuck) if stuck else "")

    async def _readyz(self, _request: web.Request) -> web.Response:
        return _answer(self._ready(), self._note())

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _answer(problem: str, note: str = "") -> web.Response:
    text = problem or "\n".join(line for line in ("ok", note) if line)
    return web.Response(text=text + "\n", status=503 if problem else 200)
