"""Posts events about a LeaseQueue. Best effort: a lost event changes nothing."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

import structlog

from leasequeue_operator.kinds import EVENT
from leasequeue_operator.kube import Kube, KubeError
from leasequeue_operator.plan.conditions import timestamp
from leasequeue_operator.plan.events import Event
from leasequeue_operator.plan.names import MANAGER, cut
from leasequeue_operator.plan.pod import API_VERSION, KIND

log = structlog.get_logger()

_MESSAGE_LIMIT = 1024  # of the Event API


async def post(kube: Kube, namespace: str, name: str, uid: str, told: Iterable[Event], now: float) -> None:
    """Log events about one LeaseQueue and post them.

    Args:
        kube: the API.
        namespace: of the LeaseQueue.
        name: of the LeaseQueue.
        uid: of the LeaseQueue.
        told: the events.
        now: seconds since 1970 UTC.
    """
    for event in told:
        moment = timestamp(now)
        level = log.warning if event.type == "Warning" else log.info
        level("transition", reason=event.reason, message=event.message)
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": namespace, "name": cut(name, f".{secrets.token_hex(8)}", 200)},
            "involvedObject": {
                "apiVersion": API_VERSION, "kind": KIND, "namespace": namespace, "name": name, "uid": uid,
            },
            "type": event.type,
            "reason": event.reason,
            "message": event.message[:_MESSAGE_LIMIT],
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "count": 1,
            "source": {"component": MANAGER},
            "reportingComponent": MANAGER,
            "reportingInstance": MANAGER,
        }  # fmt: skip
        try:
            await kube.create(EVENT, body, MANAGER)
        except KubeError as ex:
            log.warning("event_lost", queue=f"{namespace}/{name}", reason=event.reason, error=str(ex))
            return
