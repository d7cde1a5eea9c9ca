"""Rows as lines of COPY's text format, with state and created_at."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from leasequeue.encode import Shape, Texts

NULL = "\\N"
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = 1_000_000


class Instants:
    """created_at of one load's rows: the server's clock when the load began, and one microsecond more a row.

    Args:
        start: that reading.
    """

    def __init__(self, start: datetime) -> None:
        self.start = start
        self._micros = round((start - _EPOCH) / timedelta(microseconds=1))
        self._until, self._prefix = 0, ""

    @property
    def last(self) -> datetime:
        """The instant given last."""
        return _EPOCH + timedelta(microseconds=self._micros)

    def next(self) -> str:
        """The next instant, as text."""
        self._micros = micros = self._micros + 1
        if micros >= self._until:
            second = micros // _SECOND
            self._until = (second + 1) * _SECOND
            self._prefix = (_EPOCH + timedelta(seconds=second)).strftime("%Y-%m-%d %H:%M:%S.")
        return f"{self._prefix}{micros % _SECOND:06d}+00"


def line(shape: Shape, texts: Texts, instants: Instants) -> str:
    """One row: its texts in the shape's order, then state and created_at."""
    at = instants.next()
    state = "PENDING" if shape.run_at is None else _state(texts[shape.run_at], instants.start)
    try:
        joined = "\t".join(texts)  # type: ignore[arg-type]
    except TypeError:  # a NULL among them
        joined = _escaped(texts)
    else:
        # Asked of the whole row: most hold nothing that must be escaped.
        if "\\" in joined or "\n" in joined or "\r" in joined or joined.count("\t") >= len(texts) > 0:
            joined = _escaped(texts)
    return f"{joined}\t{state}\t{at}\n" if texts else f"{state}\t{at}\n"


def _escaped(texts: Texts) -> str:
    return "\t".join([NULL if text is None else text.translate(_ESCAPES) for text in texts])


def _state(run_at: str | None, now: datetime) -> str:
    return "PENDING" if run_at is None or datetime.fromisoformat(run_at) <= now else "SCHEDULED"
