"""Connecting as the queue's own pods do: at the same address, and making sure of the same name.

A Service's short name, as a Secret gives it, means nothing in the operator's namespace: the operator completes it. A certificate,
though, is checked for the name as it stands in the Secret, since that is what the workers check: an operator that checked another name would call a
database reachable that no worker can use, or the other way round.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from leasequeue import dsn


async def connect(text: str, verified: str, application_name: str) -> psycopg.AsyncConnection[Any]:
    """Open a connection. The caller bounds how long it may take.

    Args:
        text: connection string with complete host names.
        verified: the hosts as the Secret names them, with commas between; empty where they are the same or none is checked.
        application_name: shown in pg_stat_activity.

    Raises:
        BadInput: the connection string cannot be read.
        psycopg.OperationalError: a host cannot be found, the server cannot be reached or refuses the login.
    """
    if verified:
        text = await addressed(text, verified)
    return await dsn.aconnect(text, application_name=application_name)


async def addressed(text: str, verified: str) -> str:
    """The connection string with the addresses of its hosts, and the names to be checked in their place."""
    given = conninfo_to_dict(text)
    hosts, names = str(given["host"]).split(","), verified.split(",")
    ports = str(given.get("port") or "5432").split(",")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    if not len(hosts) == len(names) == len(ports):  # as libpq puts it
        raise psycopg.OperationalError(f"could not match {len(ports)} port numbers to {len(hosts)} hosts")
    places, missing = [], None
    for host, name, port in zip(hosts, names, ports, strict=True):
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as ex:
            # Never the name: where the parts of a Secret are in the wrong order it is the password.
            problem = ex.strerror if isinstance(ex, OSError) else "not a host name"
            missing = psycopg.OperationalError(f"failed to resolve host '***': {problem}")
            continue
        places += [(name, answer[4][0], port) for answer in found]
    if not places and missing is not None:
        raise missing
    host, hostaddr, port = (",".join(str(place[i]) for place in places) for i in range(3))
    return make_conninfo("", **{**given, "host": host, "hostaddr": hostaddr, "port": port})
