"""Options that commands share: the database, the table, --json, and the settings from their one definition."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
import psycopg
from psycopg.types.json import set_json_loads

from leasequeue import jsonio
from leasequeue.config import SETTINGS, LeaseConfig, Setting
from leasequeue.dsn import DsnSource, connect
from leasequeue.errors import BadInput
from leasequeue.table import Table
from leasequeue.tls import Tls

Command = TypeVar("Command", bound=Callable[..., Any])

NO_DSN = "no database given: use --dsn-file or LEASEQUEUE_DSN_FILE (preferred), --dsn or LEASEQUEUE_DSN"


@dataclass(frozen=True, slots=True)
class Target:
    """Where a command works.

    Args:
        source: the database.
        table: table name, exactly as stored.
        schema: schema name.
        as_json: print JSON.
    """

    source: DsnSource
    table: str
    schema: str
    as_json: bool

    @contextmanager
    def connect(self) -> Iterator[psycopg.Connection[Any]]:
        """A connection, closed at the end."""
        with connect(self.source, application_name="leasequeue-cli") as conn:
            set_json_loads(jsonio.loads, conn)  # numbers inside jsonb keep every digit
            yield conn

    @contextmanager
    def queue(self) -> Iterator[tuple[psycopg.Connection[Any], Table]]:
        """A connection and the resolved table."""
        with self.connect() as conn:
            yield conn, Table.load(conn, self.table, self.schema)


def dsn_source(dsn: str | None, dsn_file: str | None, tls: Tls) -> DsnSource:
    """The database from options, else from the environment; an option wins over both variables.

    Raises:
        BadInput: none given, or two at the same place.
    """
    if dsn is None and dsn_file is None:
        dsn, dsn_file = os.environ.get("LEASEQUEUE_DSN") or None, os.environ.get("LEASEQUEUE_DSN_FILE") or None
    if dsn is None and dsn_file is None:
        raise BadInput("dsn", None, NO_DSN)
    return DsnSource(dsn=dsn, path=Path(dsn_file) if dsn_file is not None else None, tls=tls)


def target(command: Command) -> Command:
    """Add --dsn, --dsn-file, --ssl-mode, --ssl-root-cert, --table, --schema and --json; the command gets them as its argument `target`."""

    def wrapped(**values: Any) -> Any:
        tls = Tls(values.pop("ssl_mode") or None, values.pop("ssl_root_cert") or None)
        source = dsn_source(values.pop("dsn"), values.pop("dsn_file"), tls)
        where = Target(source, values.pop("table"), values.pop("schema"), values.pop("as_json"))
        return command(target=where, **values)

    wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
    wrapped.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    options = (
        click.option(
            "--dsn", help="libpq connection string or URI; its password shows in the process list [env LEASEQUEUE_DSN]"
        ),
        click.option("--dsn-file", help="file or mounted Secret that holds it; read at each connect [env LEASEQUEUE_DSN_FILE]"),
        click.option(
            "--ssl-mode",
            envvar="LEASEQUEUE_SSL_MODE",
            help="require, verify-ca or verify-full; wins over the DSN's sslmode [env LEASEQUEUE_SSL_MODE]",
        ),
        click.option(
            "--ssl-root-cert",
            envvar="LEASEQUEUE_SSL_ROOT_CERT",
            help="file with the certificates to trust (PEM), or system; the mode is verify-full then, unless another is given "
            "[env LEASEQUEUE_SSL_ROOT_CERT]",
        ),
        click.option(
            "--table", required=True, envvar="LEASEQUEUE_TABLE", help="table, exactly as stored [env LEASEQUEUE_TABLE]"
        ),
        click.option(
            "--schema", default="public", envvar="LEASEQUEUE_SCHEMA", help="its schema [default public; env LEASEQUEUE_SCHEMA]"
        ),
        click.option("--json", "as_json", is_flag=True, help="print JSON, errors too"),
    )
    result: Any = wrapped
    for option in reversed(options):
        result = option(result)
    return result  # type: ignore[no-any-return]


def _check(setting: Setting) -> Callable[[click.Context, click.Parameter, Any], int]:
    """Callback with the same bounds and the same words as the resource and the environment have."""

    def callback(_context: click.Context, _option: click.Parameter, value: Any) -> int:
        return setting.check(value)

    return callback


def settings(*names: str) -> Callable[[Command], Command]:
    """Add the options of the named settings, generated from `config.SETTINGS`; the command gets them by name."""

    def add(command: Command) -> Command:
        for name in reversed(names):
            setting = SETTINGS[name]
            command = click.option(
                setting_flag(setting),
                setting.name,
                type=str,
                callback=_check(setting),
                default=str(setting.default),
                envvar=setting.env,
                metavar="N",
                help=setting_help(setting),
            )(command)
        return command

    return add


def setting_flag(setting: Setting) -> str:
    """Its option, such as `--lock-timeout-ms`."""
    return "--" + setting.name.replace("_", "-")


def setting_help(setting: Setting) -> str:
    """Sentence, unit, default, range and environment variable."""
    return f"{setting.help} [{setting.unit}; default {setting.default}, {setting.low} to {setting.high}; env {setting.env}]"


def config_of(**values: Any) -> LeaseConfig:
    """`LeaseConfig` of the values that a command has."""
    return LeaseConfig(**{name: value for name, value in values.items() if value is not None})
