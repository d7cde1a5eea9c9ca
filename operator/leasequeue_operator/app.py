"""The running operator: its parts wired together, in one asyncio loop."""

from __future__ import annotations

import asyncio
import random
import signal
import threading
import time
from contextlib import AsyncExitStack

import kopf
import structlog
from kubernetes.aio.client import ApiClient, Configuration

from leasequeue_operator import handlers, metrics, resync
from leasequeue_operator.cache import Cache, Key
from leasequeue_operator.election import RENEW_SHARE, Election
from leasequeue_operator.health import HealthServer, Watchdog
from leasequeue_operator.kinds import POD_MONITOR
from leasequeue_operator.kube import Kube, KubeError
from leasequeue_operator.observe.database import Hub
from leasequeue_operator.reconcile import Reconciler
from leasequeue_operator.selfcheck import Rights
from leasequeue_operator.settings import Settings
from leasequeue_operator.usage import Usage
from leasequeue_operator.workqueue import WorkQueue

log = structlog.get_logger()

START_RETRY_S = 5.0
JITTER = 0.1  # of the time until the next poll, so that queues of one period spread
CRASHED_AGAIN_S = 30.0
WATCH_AGAIN_S = 5.0


class Operator:
    """One operator process.

    Args:
        settings: its settings.
        configuration: the login to the API server.
    """

    def __init__(self, settings: Settings, configuration: Configuration) -> None:
        self._settings, self._configuration = settings, configuration
        self._usage = Usage()
        client = ApiClient(configuration)
        self._election = _election(settings, client, self._usage) if settings.leader_election else None
        acting = self._election.holds if self._election is not None else lambda: True
        self._acting = acting
        self._kube = Kube(client, settings.request_timeout_s, self._usage, acting)
        self._cache, self._work = Cache(), WorkQueue()
        self._hub = Hub(heard=self._heard if settings.listen else None, asked=self._usage.asked, acting=acting)
        self._tally, self._watchdog = metrics.Tally(), Watchdog()
        self._reconciler = Reconciler(self._kube, self._cache, self._hub, settings, self._tally)
        collector = metrics.Collector(self._reconciler.memories, self._tally, self._work, self._serves)
        elected_in = settings.lease_namespace if settings.leader_election else ""
        self._rights = Rights(Kube(client, settings.request_timeout_s, self._usage), settings.watch_namespaces, elected_in)
        self._not_ready, self._standing_by = "starting", False
        registry = metrics.registry(collector, self._usage, self._rights)
        self.health = HealthServer(settings.http_port, self._watchdog, self._problem, registry, self._note)

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT, or until a part of it fails."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._kube.close)
            stack.push_async_callback(self._hub.close)
            await self.health.start()
            stack.push_async_callback(self.health.stop)
            log.info("operator_started", http_port=self.health.port, namespaces=self._settings.watch_namespaces or "all")
            _cancel_on_signals()
            if self._election is not None:
                await self._stand_by(self._election)
                stack.push_async_callback(self._election.release)
            self._watchdog.expect("start", 600)
            await self._start()
            await self._serve()

    def _serves(self) -> bool:
        return not self._standing_by and not self._not_ready

    def _problem(self) -> str:
        return self._election.problem if self._standing_by and self._election is not None else self._not_ready

    def _note(self) -> str:
        standing_by = f"standing by: {self._election.holder or 'nobody'} acts" if self._standing_by and self._election else ""
        return "\n".join(line for line in (standing_by, self._rights.note()) if line)

    async def _stand_by(self, election: Election) -> None:
        """Wait until this replica is the one that acts."""
        self._standing_by = True
        try:
            await self._rights.check()
        except KubeError as ex:
            log.warning("rights_not_known", error=str(ex))
        await election.acquire()
        self._standing_by = False

    async def _start(self) -> None:
        """Wait for the API server, the rights and the CRD, then take over the first lists."""
        while True:
            lacking = ""
            try:
                await self._rights.check()
                lacking = self._rights.fatal()
                await resync.resync(self._kube, self._cache, self._settings.watch_namespaces)
                found = await resync.has_api(self._kube, POD_MONITOR.api_version, POD_MONITOR.plural)
            except KubeError as ex:
                crd_lacks = ex.status == 404
                self._not_ready = lacking or ("the CRD leasequeues.leasequeue.dev is not installed" if crd_lacks else str(ex))
            else:
                self._reconciler.monitor = found
                if not lacking:
                    return
                self._not_ready = lacking
            log.warning("operator_waits", reason=self._not_ready)
            await asyncio.sleep(START_RETRY_S)
            self._watchdog.beat("start")

    async def _serve(self) -> None:
        for key in self._cache.queue_keys():
            self._work.add(key)
        self._watchdog.expect("start", float("inf"))
        self._watchdog.expect("resync", 3 * self._settings.resync_s + 60)
        tasks = [asyncio.create_task(self._worker(), name=f"reconcile-{n}") for n in range(self._settings.workers)]
        tasks.append(asyncio.create_task(self._resync_for_ever(), name="resync"))
        if self._election is not None:
            tasks.append(asyncio.create_task(self._election.keep(), name="election"))
        started, stop = asyncio.Event(), asyncio.Event()
        watches = asyncio.create_task(self._watch_for_ever(started, stop), name="watches")
        try:
            await asyncio.wait([watches, asyncio.create_task(started.wait())], return_when=asyncio.FIRST_COMPLETED)
            _stop_on_signals(stop)
            self._not_ready = ""
            await asyncio.wait([watches, *tasks], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._not_ready = "stopping"
            for task in tasks:
                task.cancel()
            watches.cancel()
            ended = await asyncio.gather(watches, *tasks, return_exceptions=True)
        for outcome in ended:
            if isinstance(outcome, Exception):
                raise outcome

    async def _watch_for_ever(self, started: asyncio.Event, stop: asyncio.Event) -> None:
        """Watch until `stop`. A refusal that kopf takes for final (404, 409) ends its watches all at once: they are begun anew."""
        namespaces = self._settings.watch_namespaces
        while not stop.is_set():
            try:
                await kopf.operator(
                    registry=handlers.build(self._cache, self._work.add, self._count, self._configuration),
                    settings=handlers.settings(self._settings),
                    clusterwide=not namespaces,
                    namespaces=namespaces,
                    standalone=True,
                    ready_flag=started,
                    stop_flag=stop,
                )
            except Exception as ex:  # noqa: BLE001 - whatever it is: the lists go on meanwhile, and make up for what is missed
                log.warning("watches_ended", error=f"{type(ex).__name__}: {ex}"[:300], again_in_s=WATCH_AGAIN_S)
                await asyncio.sleep(WATCH_AGAIN_S)
            else:
                return  # a signal

    def _count(self, kind: str) -> None:
        self._tally.events[kind] += 1

    def _heard(self, uid: str) -> None:
        """The database says that a queue has got items."""
        body = self._cache.queue_by_uid(uid)
        if body is None:
            return
        key = (body["metadata"]["namespace"], body["metadata"]["name"])
        after_s = self._reconciler.wake(key)
        if after_s is not None:
            self._tally.wakes += 1
            self._hub.expire(uid)
            self._work.add(key, after_s)

    async def _worker(self) -> None:
        while True:
            key = await self._work.get()
            try:
                await self._one(key)
            finally:
                self._work.done(key)

    async def _one(self, key: Key) -> None:
        if not self._acting():  # the lease is lost: this process is about to end
            return
        began = time.monotonic()
        structlog.contextvars.bind_contextvars(queue="/".join(key))
        try:
            after_s = await self._reconciler.reconcile(key)
        except KubeError as ex:
            wait_s = self._work.add_failed(key, ex.retry_after_s or 0.0)
            self._tally.reconciled("failed", time.monotonic() - began)
            log.warning("reconcile_failed", error=str(ex), again_in_s=round(wait_s, 1))
        except Exception:
            # A mistake of ours with one queue must not end the service of the others; it is told and counted.
            self._work.add(key, CRASHED_AGAIN_S)
            self._tally.reconciled("crashed", time.monotonic() - began)
            log.exception("reconcile_crashed")
        else:
            self._tally.reconciled("done", time.monotonic() - began)
            self._work.succeeded(key)
            if after_s is None:
                self._work.forget(key)
            else:
                self._work.add(key, after_s * random.uniform(1, 1 + JITTER))

    async def _resync_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._settings.resync_s)
            self._watchdog.beat("resync")
            try:
                if self._rights.note():
                    await self._rights.check()
                concerned = await resync.resync(self._kube, self._cache, self._settings.watch_namespaces)
            except KubeError as ex:
                self._tally.resyncs["failed"] += 1
                log.warning("resync_failed", error=str(ex))
                continue
            self._tally.resyncs["done"] += 1
            for key in concerned:
                self._work.add(key)


def _election(settings: Settings, client: ApiClient, usage: Usage) -> Election:
    deadline_s = min(settings.request_timeout_s, settings.lease_duration_s * RENEW_SHARE)
    kube = Kube(client, deadline_s, usage)
    return Election(kube, settings.lease_namespace, settings.lease_name, settings.lease_duration_s)


def _cancel_on_signals() -> None:
    """A signal ends the wait for the lease, the rights or the CRD; as process 1 there is no default that would."""
    task = asyncio.current_task()
    if task is not None and threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)


def _stop_on_signals(stop: asyncio.Event) -> None:
    """Take the signals over from kopf, whose handler fails at a second one."""
    loop = asyncio.get_running_loop()
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
