"""All settings of a worker: one definition for flags, environment, bounds and `--help`.

What concerns the queue comes from `leasequeue.config.SETTINGS`; what concerns the process is defined here in the same form.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import click

from leasequeue.config import LeaseConfig, Setting
from leasequeue.dsn import DsnSource
from leasequeue.errors import BadInput
from leasequeue.jsonio import loads
from leasequeue.process import options
from leasequeue_worker.http_handler import checked_url
from leasequeue_worker.sizing import Limits

Isolation = Literal["thread", "process"]

PROCESS_SETTINGS: dict[str, Setting] = {
    s.name: s
    for s in (
        Setting("concurrency", "worker.concurrency", "items", 1, 1, 1_000, "Items run at a time (slots)."),
        Setting(
            "grace_s", "worker.terminationGracePeriodSeconds", "seconds", 30, 1, 86_400,
            "From SIGTERM to SIGKILL: how long running items may go on before they are given back.",
        ),
        Setting(
            "max_runtime_s", "worker.maxRuntimeSeconds", "seconds", 0, 0, 604_800,
            "An item that runs longer is stopped and retried, or set aside for REPAIR where it cannot be stopped. 0: no limit.",
        ),
        Setting("http_port", "", "TCP port", 8_080, 0, 65_535, "Port of /healthz, /readyz and /metrics. 0: none."),
        Setting(
            "max_replicas", "scaling.maxReplicas", "workers", 1, 1, 10_000,
            "Most workers of this queue: each prefetches at most max_inflight / (2 × max_replicas) items.",
        ),
    )
}  # fmt: skip


@dataclass(frozen=True)
class HandlerSpec:
    """What runs an item.

    Args:
        kind: python, exec or http.
        target: `package.module:function`, the command's words, or the URL.
    """

    kind: Literal["python", "exec", "http"]
    target: str | list[str]


@dataclass(frozen=True)
class Settings:
    """Validated settings of one worker process; see `OPTIONS` for each one's meaning."""

    source: DsnSource
    schema: str
    table: str
    handler: HandlerSpec
    config: LeaseConfig = field(default_factory=LeaseConfig)
    concurrency: int = 1
    isolation: Isolation = "thread"
    lanes: list[str] | None = None
    grace_s: int = 30
    max_runtime_s: int = 0
    http_port: int = 8_080
    max_replicas: int = 1
    queue: str = ""
    pod_name: str | None = None
    pod_uid: str | None = None
    wakeup: bool = True
    audit: bool = True
    log_level: str = "INFO"

    @property
    def limits(self) -> Limits:
        """What sizes the claims."""
        config = self.config
        return Limits(self.concurrency, config.batch_size, config.max_inflight, self.max_replicas)

    @property
    def queue_label(self) -> tuple[str, str]:
        """Labels queue_namespace and queue."""
        namespace, slash, name = self.queue.partition("/")
        if slash:
            return namespace, name
        return "", self.queue or f"{self.schema}.{self.table}"


OPTIONS: tuple[options.Decorator, ...] = (
    *options.DATABASE,
    options.text(
        "--handler", "handler", "LEASEQUEUE_HANDLER", "package.module:function, called as handler(item, ctx); sync or async."
    ),
    options.text(
        "--exec", "exec_", "LEASEQUEUE_EXEC",
        'A command an item, as a JSON array such as ["./work", "--fast"]: the item as JSON on its standard input, the result as '
        "JSON on its standard output. Exit code 0 resolves, 75 retries, 65 sets aside for REPAIR, others retry.",
    ),
    options.text(
        "--http-url", "http_url", "LEASEQUEUE_HTTP_URL", "An HTTP POST an item, with its JSON as body and an Idempotency-Key."
    ),
    options.choice(
        "isolation", ("thread", "process"), "LEASEQUEUE_ISOLATION",
        "process: a child process a slot, for handlers that hold Python's GIL or may crash.",
    ),
    click.option("--lane", "lane", multiple=True, metavar="L", help="Only items of this lane; may be repeated."),
    options.text("--lanes", "lanes", "LEASEQUEUE_LANES", "Only items of these lanes, as a JSON array."),
    *(options.number(setting) for setting in PROCESS_SETTINGS.values()),
    *options.QUEUE,
    options.switch("wakeup", "LEASEQUEUE_WAKEUP", True, "Listen for notifications of new items; polling goes on either way."),
    options.switch("audit", "LEASEQUEUE_AUDIT", True, "Write audit lines for every item (item_leased, item_resolved, …)."),
    options.text("--pod-name", "pod_name", "POD_NAME", "Name that worker_id begins with; by default the host's."),
    options.text("--pod-uid", "pod_uid", "POD_UID", "Uid of the pod, by which it is cordoned."),
)  # fmt: skip


def build(given: dict[str, Any]) -> Settings:
    """Validated settings from option values.

    Raises:
        BadInput: names the option, its value and the way out.
    """
    process = {name: given[name] for name in PROCESS_SETTINGS}
    same = {k: given[k] for k in ("schema", "isolation", "wakeup", "audit", "log_level", "pod_name", "pod_uid")}
    return Settings(
        source=options.dsn_source(given),
        table=options.table_name(given["table"]),
        handler=handler_spec(given["handler"], given["exec_"], given["http_url"]),
        config=options.lease_config(given),
        lanes=lanes(given["lane"], given["lanes"]),
        queue=given["queue"] or "",
        **process,
        **same,
    )


def handler_spec(handler: str | None, command: str | None, url: str | None) -> HandlerSpec:
    """The one handler that was given.

    Raises:
        BadInput: none or several are given, or one is malformed.
    """
    given = [name for name, value in (("--handler", handler), ("--exec", command), ("--http-url", url)) if value]
    if len(given) != 1:
        raise BadInput("handler", given, "give exactly one of --handler, --exec and --http-url")
    if handler:
        return HandlerSpec("python", handler)
    if command:
        return HandlerSpec("exec", _words("exec", command))
    checked_url(url or "")
    return HandlerSpec("http", url or "")


def lanes(repeated: tuple[str, ...], as_json: str | None) -> list[str] | None:
    """Lanes to claim from; None: all items."""
    found = [*repeated, *(_words("lanes", as_json, empty=True) if as_json else [])]
    return found or None


def _words(name: str, text: str, *, empty: bool = False) -> list[str]:
    problem = 'must be a JSON array of strings, such as ["a", "b"]'
    try:
        words = loads(text)
    except BadInput:
        raise BadInput(name, text, problem) from None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words) or not (words or empty):
        raise BadInput(name, text, problem)
    return words
