"""A TCP proxy in front of PostgreSQL that loses replies: for faults that no signal can make.

Per connection two threads copy bytes. `lose_commits(n)` arms it: the next n answers that tell of a commit (COMMIT, or an UPDATE that was
a transaction of its own) are not delivered; both sides are cut instead. The server has committed, the client cannot know. `cut()` drops every connection;
`freeze()` swallows traffic both ways without closing anything (a half-open connection), `thaw()` ends it by cutting.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from types import TracebackType
from typing import Self

# CommandComplete in the PostgreSQL protocol: type C, four bytes of length, the tag with its NUL. After an UPDATE that was a transaction of
# its own the server is idle at once (ReadyForQuery: type Z, length 5, I).
COMMITTED = re.compile(rb"C\x00\x00\x00\x0bCOMMIT\x00|C\x00\x00\x00.UPDATE [1-9][0-9]*\x00Z\x00\x00\x00\x05I", re.DOTALL)
LONGEST = 40
CHUNK = 65_536


class TcpProxy:
    """Listens on loopback and forwards to (host, port).

    Args:
        host: address of the server.
        port: its port.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._lock = threading.Lock()
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._to_lose = 0
        self.lost = 0
        self._frozen = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True, name="tcpproxy")
        self._thread.start()

    def lose_commits(self, n: int = 1) -> None:
        """Swallow the next `n` acknowledgements of a commit."""
        with self._lock:
            self._to_lose += n

    def cut(self) -> int:
        """Drop every connection; returns how many."""
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            self._close(pair)
        return len(pairs)

    def freeze(self) -> None:
        """Deliver nothing more, in either direction, and close nothing."""
        self._frozen.set()

    def thaw(self) -> None:
        """End a freeze: what was in flight is gone, so every connection is cut."""
        self.cut()
        self._frozen.clear()

    def close(self) -> None:
        """Stop listening and drop every connection."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target, timeout=5)
                server.settimeout(None)
            except OSError:
                client.close()
                continue
            pair = (client, server)
            with self._lock:
                self._pairs.add(pair)
            for source, sink, answers in ((client, server, False), (server, client, True)):
                threading.Thread(target=self._copy, args=(pair, source, sink, answers), daemon=True).start()

    def _copy(
        self, pair: tuple[socket.socket, socket.socket], source: socket.socket, sink: socket.socket, answers: bool
    ) -> None:
        tail = b""
        try:
            while data := source.recv(CHUNK):
                if self._frozen.is_set():
                    continue
                if answers:
                    if self._loses(tail, data):
                        break
                    tail = data[-LONGEST:]
                sink.sendall(data)
        except OSError:
            pass
        finally:
            self._close(pair)

    def _loses(self, tail: bytes, data: bytes) -> bool:
        if not self._to_lose or not any(found.end() > len(tail) for found in COMMITTED.finditer(tail + data)):
            return False
        with self._lock:
            if not self._to_lose:
                return False
            self._to_lose -= 1
            self.lost += 1
            return True

    def _close(self, pair: tuple[socket.socket, socket.socket]) -> None:
        with self._lock:
            self._pairs.discard(pair)
        for end in pair:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
