"""A TCP proxy between worker and server that breaks things on purpose: stalls, cuts, answers lost at a chosen moment."""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo


@dataclass
class Rule:
    """Break the connections of one application when a pattern passes.

    Args:
        application: application_name of the connection.
        pattern: bytes to look for.
        reply: look in what the server sends (the work is done, its answer is lost), or in what the client sends (never arrives).
        times: how often to do it.
    """

    application: str
    pattern: bytes
    reply: bool
    times: int = 1
    done: list[str] = field(default_factory=list)


class _Pair:
    """One proxied connection."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server
        self.application = ""

    def close(self) -> None:
        for sock in (self.client, self.server):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()


class TcpProxy:
    """Listens on a loopback port and forwards to the server of `dsn`.

    Args:
        dsn: of a server that listens on TCP.
    """

    def __init__(self, dsn: str) -> None:
        self._parts = conninfo_to_dict(dsn)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._flowing = threading.Event()
        self._flowing.set()
        self._pairs: list[_Pair] = []
        self.rules: list[Rule] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def dsn(self) -> str:
        """The DSN through the proxy."""
        return make_conninfo(**{**self._parts, "host": "127.0.0.1", "port": self._listener.getsockname()[1]})

    def stall(self) -> None:
        """Swallow nothing, forward nothing: both sides see a peer that acknowledges and never answers."""
        self._flowing.clear()

    def flow(self) -> None:
        """Forward again, what was held back first."""
        self._flowing.set()

    def cut(self) -> int:
        """Break every connection; how many."""
        pairs, self._pairs = self._pairs, []
        for pair in pairs:
            pair.close()
        return len(pairs)

    def lose_reply(self, application: str, pattern: bytes, times: int = 1) -> Rule:
        """The server's answer that holds `pattern` is lost with its connection."""
        return self._add(Rule(application, pattern, True, times))

    def lose_request(self, application: str, pattern: bytes, times: int = 1) -> Rule:
        """The client's message that holds `pattern` is lost with its connection."""
        return self._add(Rule(application, pattern, False, times))

    def _add(self, rule: Rule) -> Rule:
        self.rules.append(rule)
        return rule

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection((str(self._parts["host"]), int(str(self._parts["port"]))))
            except OSError:
                return
            pair = _Pair(client, server)
            self._pairs.append(pair)
            for reply in (False, True):
                threading.Thread(target=self._pump, args=(pair, reply), daemon=True).start()

    def _pump(self, pair: _Pair, reply: bool) -> None:
        source, target = (pair.server, pair.client) if reply else (pair.client, pair.server)
        try:
            while data := source.recv(65536):
                self._flowing.wait()
                if not reply and b"application_name\0" in data:
                    pair.application = data.split(b"application_name\0", 1)[1].split(b"\0", 1)[0].decode()
                if self._broken(pair, reply, data):
                    break
                target.sendall(data)
        except OSError:
            pass
        pair.close()

    def _broken(self, pair: _Pair, reply: bool, data: bytes) -> bool:
        for rule in self.rules:
            wanted = rule.reply is reply and rule.application == pair.application and len(rule.done) < rule.times
            if wanted and rule.pattern in data:
                rule.done.append(pair.application)
                return True
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._listener.close()
        self._flowing.set()
        self.cut()
