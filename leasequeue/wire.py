"""A transaction in one packet, for connections that one thread has for itself.

psycopg's pipeline sends each statement as it is executed: for a claim of four statements the server is woken and answers four times.
Here they leave together and their answers are read together, which saves a third of a claim's fixed cost on either side. libpq
prepares statements by name, once a connection, so no pooler may stand between; and autocommit is on: transactions begin and end by
statements of their own.

A connection whose answers were not read to the end (an error of the network, an interrupt) is closed: nothing that follows on it
could be told apart.
"""

from __future__ import annotations

import re
import select
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from psycopg import abc, errors
from psycopg.adapt import Transformer
from psycopg.pq import ConnStatus, ExecStatus
from psycopg.pq.abc import PGresult

from leasequeue.arrays import text_array
from leasequeue.rows import Codec, Result, TextContext, decoded, names_of, texts

if TYPE_CHECKING:
    from leasequeue.run import Query

MOST_PREPARED = 100
_PLACEHOLDER = re.compile(r"%\((\w+)\)s|%%")
_FAILED = (ExecStatus.FATAL_ERROR, ExecStatus.BAD_RESPONSE)


class Prepared(NamedTuple):
    """One statement of a connection: its name there, and the parameters in their order."""

    name: bytes
    parameters: tuple[str, ...]


class Shape(NamedTuple):
    """What a prepared statement returns. The server refuses to run it once that has changed, so it is looked at once.

    Args:
        names: of the columns.
        codec: of their types.
        plain: reads rows as text.
    """

    names: tuple[str, ...]
    codec: Codec
    plain: abc.Transformer


class Wire:
    """The prepared statements of one connection.

    Args:
        conn: in autocommit, in UTF-8, used by one thread, with no pooler between.
    """

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self._conn, self._pg = conn, conn.pgconn
        self._prepared: dict[str, Prepared] = {}
        self._made = 0
        self._typed = Transformer(conn)
        self._shapes: dict[str, Shape] = {}
        self._readable, self._both = select.poll(), select.poll()
        self._readable.register(self._pg.socket, select.POLLIN)
        self._both.register(self._pg.socket, select.POLLIN | select.POLLOUT)

    def ask(self, queries: Sequence[Query], *, before: str = "", after: str = "") -> list[Result]:
        """Run statements in one round trip; the result of each.

        Args:
            queries: what to run, in order; after one that fails none is run.
            before: a statement to open with, such as BEGIN.
            after: a statement to end with, such as COMMIT.

        Raises:
            psycopg.Error: the first that failed; a transaction that `before` opened waits for its ROLLBACK.
        """
        if len(queries) == 1 and not before and not after:
            return [self._ask_one(queries[0])]
        # All are prepared before any is sent: an unknown column must not leave half a transaction on its way.
        opening, closing = ([self._statement(text)] if text else [] for text in (before, after))
        bound = [(statement, bind(query.params, statement)) for query in queries for statement in [self._statement(query.text)]]
        send = self._pg.send_query_prepared

        def sends() -> None:
            for statement in opening:
                send(statement.name, None)
            for statement, values in bound:
                send(statement.name, values)
            for statement in closing:
                send(statement.name, None)

        answers = self._exchange(sends)[len(opening) :]
        return [self._result(query, answer) for query, answer in zip(queries, answers, strict=False)]

    def _ask_one(self, query: Query) -> Result:
        """One statement needs no pipeline: entering and leaving it, and its Sync, would be a tenth of a short statement's client time."""
        statement = self._statement(query.text)
        values = bind(query.params, statement)
        (answer,) = self._exchange(lambda: self._pg.send_query_prepared(statement.name, values), pipelined=False)
        return self._result(query, answer)

    def forget(self) -> None:
        """Prepare statements anew: what was prepared is gone, or of no use."""
        self._prepared.clear()
        self._shapes.clear()

    def _statement(self, text: str) -> Prepared:
        return self._prepared.get(text) or self._prepare(text)

    def _prepare(self, text: str) -> Prepared:
        if len(self._prepared) >= MOST_PREPARED:
            self.forget()
        if not self._prepared and self._made:
            self._conn.execute("DEALLOCATE ALL", prepare=False)  # psycopg forgets its own plans at this as well
        self._made += 1
        numbered, parameters = numbered_text(text)
        statement = Prepared(b"lq_%d" % self._made, parameters)
        self._exchange(lambda: self._pg.send_prepare(statement.name, numbered.encode()))
        self._prepared[text] = statement
        return statement

    def _exchange(self, send: Callable[[], None], *, pipelined: bool = True) -> list[PGresult]:
        """Send, and read all answers.

        Raises:
            psycopg.Error: the server refused a statement, or the connection is lost.
        """
        answers: list[PGresult] = []
        try:
            if pipelined:
                self._pg.enter_pipeline_mode()
            send()
            if pipelined:
                self._pg.pipeline_sync()
            self._flush()
            self._collect(answers, pipelined)
            if pipelined:
                self._pg.exit_pipeline_mode()
        except BaseException:
            self._conn.close()
            self._refuse(answers)  # why the server hung up says more than that it did
            raise
        self._refuse(answers)
        return answers

    def _flush(self) -> None:
        while self._pg.flush():
            for _, events in self._both.poll():
                if events & ~select.POLLOUT:
                    self._pg.consume_input()

    def _collect(self, answers: list[PGresult], pipelined: bool) -> None:
        pg = self._pg
        while True:
            while pg.is_busy():
                self._readable.poll()
                pg.consume_input()
            answer = pg.get_result()
            if answer is None:  # the end of one statement's answer
                if pg.status == ConnStatus.BAD:
                    raise psycopg.OperationalError("the connection is lost")
                if not pipelined:
                    break
                continue
            if answer.status == ExecStatus.PIPELINE_SYNC:
                break
            answers.append(answer)
        while note := pg.notifies():  # as psycopg does: for `Connection.notifies`
            if pg.notify_handler:
                pg.notify_handler(note)

    def _refuse(self, answers: Sequence[PGresult]) -> None:
        failed = next((answer for answer in answers if answer.status in _FAILED), None)
        if failed is None:
            return
        error = errors.error_from_result(failed)
        if isinstance(error, (errors.FeatureNotSupported, errors.InvalidSqlStatementName)):
            self.forget()  # a plan that a new column outdated, or that somebody deallocated
        raise error

    def _result(self, query: Query, answer: PGresult) -> Result:
        if not query.raw:
            return Result(names_of(answer, "utf-8"), decoded(self._typed, answer, self._conn))
        shape = self._shapes.get(query.text) or self._learn(query.text, answer)
        if (rows := texts(shape.plain, answer)) is not None:
            return Result(shape.names, rows, shape.codec)
        return Result(shape.names, decoded(self._typed, answer, self._conn))

    def _learn(self, text: str, answer: PGresult) -> Shape:
        types = tuple([answer.ftype(column) for column in range(answer.nfields)])
        plain = Transformer(TextContext(self._conn))
        plain.set_pgresult(answer)
        shape = self._shapes[text] = Shape(names_of(answer, "utf-8"), Codec(types, self._conn), plain)
        return shape


def numbered_text(text: str) -> tuple[str, tuple[str, ...]]:
    """A statement with `$1` for `%(name)s`, and the names in order; one that occurs twice has one number.

    >>> numbered_text("SELECT %(a)s, %(b)s, %(a)s, '%%'")
    ("SELECT $1, $2, $1, '%'", ('a', 'b'))
    """
    names: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        return f"${names.setdefault(found[1], len(names) + 1)}" if found[1] else "%"

    return _PLACEHOLDER.sub(number, text), tuple(names)


def bind(params: Mapping[str, Any] | Sequence[Any] | None, statement: Prepared) -> list[bytes | None] | None:
    """Parameters as the server reads them; it knows their types from the statement."""
    if not isinstance(params, Mapping):
        if params:
            raise TypeError("statements of a kept connection take their parameters by name")
        return None
    return [_bytes(params[name]) for name in statement.parameters]


def _bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        value = text_array(value)
    text = (value if isinstance(value, str) else str(value)).encode()
    if b"\0" in text:
        raise psycopg.DataError("PostgreSQL text cannot hold NUL (0x00) characters")
    return text
