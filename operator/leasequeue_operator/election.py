"""One operator acts at a time: a Lease (coordination.k8s.io) that the acting process renews.

What it gives, and what not: the holder writes nothing from the moment its lease has run out by its own clock, counted from before
the renewal was sent, so a process that was stopped for a while (SIGSTOP, a frozen node) finds on its return that it may not
write, and ends. A write that was on its way to the API server when the process froze cannot be called back: children are
applied with their uid and the number of pods is absolute, so it does no more than repeat an older decision once.

Clocks of two machines are never compared. A process that waits takes the lease over when it has seen the same record for a
whole duration by its own clock, as client-go does.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import structlog

from leasequeue_operator.kinds import LEASE
from leasequeue_operator.kube import MERGE, Kube, KubeError
from leasequeue_operator.plan.names import MANAGER

log = structlog.get_logger()

# Of the duration: how often it is renewed, and for how long the holder relies on it. What is left between that and the moment
# at which another may take it covers the writes that were sent just before.
RENEW_SHARE, TRUST_SHARE = 0.2, 2 / 3


def boot_clock() -> float:
    """Seconds that go on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class LostLease(Exception):
    """This process no longer holds the lease and must not act."""


class Election:
    """This process's part in the election.

    Args:
        kube: the API, with a deadline below a fifth of the duration; not gated by this election itself.
        namespace: of the Lease.
        name: of the Lease.
        duration_s: how long a lease lasts without renewal, seconds.
        clock: seconds that never go back nor stand still.
        identity: of this process; made up by default.
    """

    def __init__(
        self,
        kube: Kube,
        namespace: str,
        name: str,
        duration_s: float,
        clock: Callable[[], float] = boot_clock,
        identity: str = "",
    ) -> None:
        self._kube, self._namespace, self._name, self._duration_s, self._clock = kube, namespace, name, duration_s, clock
        self.identity = identity or f"{socket.gethostname()}_{secrets.token_hex(4)}"
        self._trusted_until = float("-inf")
        self._seen: tuple[object, float] = (None, float("-inf"))  # the record, and since when it is the same
        self.holder, self.problem = "", ""

    def holds(self) -> bool:
        """Whether this process may act now."""
        return self._clock() < self._trusted_until

    async def acquire(self) -> None:
        """Wait until this process holds the lease."""
        told = None
        while not await self._tried():
            if self.holder != told:
                told = self.holder
                log.info("standing_by", holder=told)
            await asyncio.sleep(self._duration_s * RENEW_SHARE * random.uniform(0.5, 1.0))
        log.info("lease_acquired", identity=self.identity)

    async def keep(self) -> None:
        """Renew until that fails for too long.

        Raises:
            LostLease: always in the end; nothing may be written any more.
        """
        while self.holds():
            await asyncio.sleep(self._duration_s * RENEW_SHARE)
            if not self.holds():
                break  # stopped in between: another may hold it by now
            await self._tried()
        raise LostLease(f"the lease {self._namespace}/{self._name} was not renewed in time")

    async def release(self) -> None:
        """Give the lease back, so that another need not wait for its end. Best effort."""
        if not self.holds():
            return
        self._trusted_until = float("-inf")
        try:
            live = await self._read()
            if live is not None and _spec(live).get("holderIdentity") == self.identity:
                await self._write(live, {"holderIdentity": "", "renewTime": _now()})
        except KubeError as ex:
            log.warning("lease_not_released", error=str(ex))

    async def _tried(self) -> bool:
        """Acquire or renew if possible. False where that is refused, unanswered, or another holds it."""
        began = self._clock()
        try:
            live = await self._read()
            if live is None:
                await self._make()
            elif not self._free(live):
                self._trusted_until, self.problem = float("-inf"), ""
                return False
            else:
                await self._take(live)
        except KubeError as ex:
            if ex.status != 409:  # another was first
                self.problem = f"the lease {self._namespace}/{self._name}: {ex}"
                log.warning("lease_not_renewed", error=str(ex))
            return False
        self.problem, self.holder = "", self.identity
        self._trusted_until = began + self._duration_s * TRUST_SHARE
        return self.holds()

    def _free(self, live: Mapping[str, Any]) -> bool:
        """Whether this process may take it: it is its own, nobody's, or was not renewed for its duration while we watched."""
        spec = _spec(live)
        holder = self.holder = spec.get("holderIdentity") or ""
        record = (holder, spec.get("renewTime"), spec.get("leaseTransitions"))
        if record != self._seen[0]:
            self._seen = (record, self._clock())
        lasts_s = float(spec.get("leaseDurationSeconds") or self._duration_s)
        return holder in ("", self.identity) or self._clock() - self._seen[1] > lasts_s

    async def _read(self) -> dict[str, Any] | None:
        return await self._kube.find(LEASE, self._namespace, self._name)

    async def _make(self) -> None:
        meta = {"namespace": self._namespace, "name": self._name}
        body = {"apiVersion": LEASE.api_version, "kind": LEASE.name, "metadata": meta, "spec": self._claim(0)}
        await self._kube.create(LEASE, body, MANAGER)

    async def _take(self, live: Mapping[str, Any]) -> None:
        spec = _spec(live)
        transitions = int(spec.get("leaseTransitions") or 0)
        if spec.get("holderIdentity") == self.identity:
            await self._write(live, {"renewTime": _now(), "leaseDurationSeconds": round(self._duration_s)})
        else:
            await self._write(live, self._claim(transitions + 1))

    def _claim(self, transitions: int) -> dict[str, Any]:
        moment = _now()
        return {
            "holderIdentity": self.identity, "leaseDurationSeconds": round(self._duration_s), "acquireTime": moment,
            "renewTime": moment, "leaseTransitions": transitions,
        }  # fmt: skip

    async def _write(self, live: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
        # The version makes it a compare-and-set: of two that take it at once, one gets 409.
        change = {"metadata": {"resourceVersion": live["metadata"]["resourceVersion"]}, "spec": spec}
        path = LEASE.path(self._namespace, self._name)
        await self._kube.patch(path, change, content_type=MERGE, manager=MANAGER)


def _spec(live: Mapping[str, Any]) -> Mapping[str, Any]:
    spec: Mapping[str, Any] = live.get("spec") or {}
    return spec


def _now() -> str:
    """MicroTime of the Lease API; for people, never compared."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
