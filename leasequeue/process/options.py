"""Command-line options of the processes, made from the one definition of the settings.

Every option can be given by its environment variable; its help text names unit, range, default and variable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from leasequeue.config import SETTINGS, LeaseConfig, Setting
from leasequeue.dsn import DsnSource, redact
from leasequeue.errors import BadInput
from leasequeue.tls import Tls

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def number(setting: Setting) -> Decorator:
    """Option of a numeric setting, checked against its bounds."""
    flag = "--" + setting.name.replace("_", "-")
    text = f"{setting.help} [{setting.unit}; {setting.low} to {setting.high}; default {setting.default}; {setting.env}]"

    def check(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int:
        try:
            return setting.default if value is None else setting.check(value)
        except BadInput as ex:
            raise click.BadParameter(str(ex)) from None

    return click.option(flag, setting.name, metavar="N", envvar=setting.env, callback=check, help=text)


def choice(name: str, choices: tuple[str, ...], env: str, text: str) -> Decorator:
    """Option with a fixed set of values; the first is the default."""
    flag = "--" + name.replace("_", "-")
    shown = f"{text} [default {choices[0]}; {env}]"
    return click.option(flag, name, type=click.Choice(choices), default=choices[0], envvar=env, help=shown)


def text(flag: str, name: str, env: str, about: str, **extra: Any) -> Decorator:
    """Option with a free value."""
    return click.option(flag, name, envvar=env, help=f"{about} [{env}]", **extra)


def switch(name: str, env: str, default: bool, about: str) -> Decorator:
    """Option that is on or off."""
    word = name.replace("_", "-")
    shown = f"{about} [default {'yes' if default else 'no'}; {env}]"
    return click.option(f"--{word}/--no-{word}", name, default=default, envvar=env, help=shown)


def apply(options: Iterable[Decorator]) -> Decorator:
    """All options as one decorator, shown in their order."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(list(options)):
            function = option(function)
        return function

    return decorate


class Command(click.Command):
    """A command whose usage errors show no password: a DSN may stand where it does not belong."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """See click."""
        with _without_passwords():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """See click."""
        with _without_passwords():
            return super().invoke(ctx)


@contextmanager
def _without_passwords() -> Iterator[None]:
    try:
        yield
    except click.ClickException as ex:
        ex.__dict__["message"] = redact(ex.message)
        raise


DATABASE = (
    text("--dsn", "dsn", "LEASEQUEUE_DSN", "Connection string. A password in it shows in the process list: prefer --dsn-file."),
    text(
        "--dsn-file", "dsn_file", "LEASEQUEUE_DSN_FILE",
        "File with a connection string, or directory with files uri, or host, port, user, password, dbname. Read at each connect.",
    ),
    text(
        "--ssl-mode", "ssl_mode", "LEASEQUEUE_SSL_MODE",
        "require, verify-ca or verify-full; wins over the DSN's sslmode. By default the DSN's own.",
    ),
    text(
        "--ssl-root-cert", "ssl_root_cert", "LEASEQUEUE_SSL_ROOT_CERT",
        "File with the certificates to trust (PEM), or system. Read at each connect; with it the default mode is verify-full.",
    ),
    text("--schema", "schema", "LEASEQUEUE_SCHEMA", "Schema of the table, as stored.", default="public", show_default=True),
    text("--table", "table", "LEASEQUEUE_TABLE", "The queue's table, as stored."),
)  # fmt: skip
QUEUE = (
    *(number(setting) for setting in SETTINGS.values()),
    choice(
        "max_inflight_policy", ("Alert", "Enforce"), "LEASEQUEUE_MAX_INFLIGHT_POLICY",
        "Enforce: no claim takes the queue above max_inflight.",
    ),
    switch("strict_lanes", "LEASEQUEUE_STRICT_LANES", False, "Items of one lane run one at a time, in order."),
    choice("on_blocked_head", ("Block", "Pass"), "LEASEQUEUE_ON_BLOCKED_HEAD", "What a lane does whose first item cannot run."),
    text("--queue", "queue", "LEASEQUEUE_QUEUE", "namespace/name for logs and metrics; by default schema.table."),
    choice("log_level", ("INFO", "DEBUG", "WARNING", "ERROR"), "LEASEQUEUE_LOG_LEVEL", "Least severity of log lines."),
)  # fmt: skip


def dsn_source(given: Mapping[str, Any]) -> DsnSource:
    """Where the DSN comes from, from option values; a file wins over a DSN, since it can be rotated.

    Raises:
        BadInput: neither is given, or the TLS settings do not go together.
    """
    tls = Tls(given["ssl_mode"] or None, given["ssl_root_cert"] or None)
    if given["dsn_file"]:
        return DsnSource(path=Path(given["dsn_file"]), tls=tls)
    if given["dsn"]:
        return DsnSource(dsn=given["dsn"], tls=tls)
    raise BadInput("dsn", None, "is missing; give --dsn, LEASEQUEUE_DSN, --dsn-file or LEASEQUEUE_DSN_FILE")


def table_name(given: str | None) -> str:
    """The table that was named.

    Raises:
        BadInput: none was.
    """
    if not given:
        raise BadInput("table", given, "is missing; give --table or LEASEQUEUE_TABLE")
    return given


def lease_config(given: dict[str, Any]) -> LeaseConfig:
    """Settings of the queue from option values.

    Raises:
        BadInput: out of range.
    """
    policies = {name: given[name] for name in ("max_inflight_policy", "strict_lanes", "on_blocked_head")}
    return LeaseConfig(**{name: given[name] for name in SETTINGS}, **policies)
