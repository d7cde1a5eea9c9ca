"""kopf at the edge: every event goes into the cache and enqueues the key of its queue, nothing else.

Only `on.event` is used: kopf then keeps no finalizer and no annotation on anybody's object and sends no patch (it writes them
for its create, update and delete handlers, for daemons and for timers).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kopf
from kubernetes.aio.client import Configuration

from leasequeue_operator.cache import Cache, Key
from leasequeue_operator.kinds import LEASE_QUEUE, WATCHED_CHILDREN, Kind
from leasequeue_operator.plan.names import UID_LABEL
from leasequeue_operator.settings import Settings

Enqueue = Callable[[Key, float], None]

# Events of pods and other children come in bursts: they are gathered for this long.
GATHER_S = 0.3


def build(cache: Cache, enqueue: Enqueue, count: Callable[[str], None], configuration: Configuration) -> kopf.OperatorRegistry:
    """The kopf registry.

    Args:
        cache: takes what the events show.
        enqueue: called with the key of the queue concerned and a delay in seconds.
        count: called with the kind of each event.
        configuration: the API client's, so that kopf logs in the same way.
    """
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        return await connection_info(configuration)

    for kind in (LEASE_QUEUE, *WATCHED_CHILDREN):
        _watch(registry, kind, cache, enqueue, count)
    return registry


def _watch(registry: kopf.OperatorRegistry, kind: Kind, cache: Cache, enqueue: Enqueue, count: Callable[[str], None]) -> None:
    delay_s = 0.0 if kind is LEASE_QUEUE else GATHER_S
    group, _, version = kind.api_version.rpartition("/")

    @kopf.on.event(group, version, kind.plural, registry=registry, id=f"enqueue-{kind.plural}")
    async def on_event(event: Any, **_: Any) -> None:
        count(kind.name)
        body = event["object"]
        concerned = cache.drop(kind.name, body) if event["type"] == "DELETED" else cache.put(kind.name, body)
        if concerned is not None:
            enqueue(concerned, delay_s)


def settings(own: Settings) -> kopf.OperatorSettings:
    """kopf's settings: bounded watches, nothing posted, nothing scanned at run time.

    A watch whose connection was cut without notice (kopf#585) ends after 70 s without an event or bookmark, after
    `watch_timeout_s` at the server, and a little later at the client.
    """
    made = kopf.OperatorSettings()
    made.posting.enabled = False
    # Namespaces and CRDs are not watched: those are rights on the whole cluster.
    made.scanning.disabled = True
    made.peering.standalone = True
    made.watching.server_timeout = own.watch_timeout_s
    made.watching.client_timeout = own.watch_timeout_s + 10
    made.watching.connect_timeout = own.request_timeout_s
    made.watching.chunk_size = 500
    made.networking.request_timeout = own.request_timeout_s * 3
    made.networking.connect_timeout = own.request_timeout_s
    made.process.ultimate_exiting_timeout = 30
    for kind in WATCHED_CHILDREN:
        group, _, version = kind.api_version.rpartition("/")
        made.watching.label_selectors[group, version, kind.plural] = UID_LABEL
    return made


async def connection_info(configuration: Configuration) -> kopf.ConnectionInfo:
    """The API client's login in kopf's words. Called anew when the server no longer takes the token."""
    header = await configuration.get_api_key_with_prefix("BearerToken")
    scheme, _, token = (header or "").partition(" ")
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        username=configuration.username or None,
        password=configuration.password or None,
        scheme=scheme.capitalize() or None,
        token=token.strip() or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        default_namespace="default",
    )
