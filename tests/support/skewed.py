"""Runs a module with a wall clock that is wrong: `python -m tests.support.skewed SECONDS MODULE`. Monotonic clocks stay right."""

from __future__ import annotations

import datetime
import runpy
import sys
import time

_SKEW = float(sys.argv[1])
_time, _time_ns = time.time, time.time_ns


class _Same(type):
    """What psycopg makes are plain datetimes: they count as instances."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _Skewed.__base__)  # type: ignore[arg-type]


class _Skewed(datetime.datetime, metaclass=_Same):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> _Skewed:
        """The wrong time."""
        return cls.fromtimestamp(_time() + _SKEW, tz)


if __name__ == "__main__":
    time.time = lambda: _time() + _SKEW
    time.time_ns = lambda: _time_ns() + int(_SKEW * 1e9)
    datetime.datetime = _Skewed  # type: ignore[misc]
    module = sys.argv.pop(2)
    del sys.argv[1]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
