"""What the database says when a row's data, and not the moment, is the trouble."""

from __future__ import annotations

import psycopg

# 54: one row's value is too large (an index row, a jsonb string); 09, 27, 44, P0: triggers; 45: what many of them raise.
_DATA = frozenset({"09", "21", "22", "23", "27", "44", "45", "54", "P0"})
_GENERATED = "428C9"  # a verdict sets a column that the table computes
_ROW_SECURITY = "42501"  # a policy's WITH CHECK refuses the new row (and so say missing rights, which then every row shows)


def is_data_state(state: str) -> bool:
    """True for a SQLSTATE that speaks of a row's data: what it holds, or what a trigger, a check or a key makes of it."""
    if state[:2] in _DATA or state == _GENERATED:
        return True
    # SQL leaves these classes to triggers and functions; XX is the server's own trouble.
    return state[0] in "689" or (state[0] >= "I" and state[:2] != "XX")


def refuses_data(error: psycopg.Error) -> bool:
    """True when `error` is about the data of a row: the others of its batch can be spared.

    Without a SQLSTATE the client side failed: a value that cannot be adapted is data, a lost connection is not.
    """
    if error.sqlstate is None:
        return isinstance(error, psycopg.DataError)
    return is_data_state(error.sqlstate)


def refuses_row(error: psycopg.Error) -> bool:
    """True when one row of a page may be what `error` is about: as `refuses_data`, and rows that a policy refuses or that cannot be read
    (XX001, XX000: corrupted, a TOAST value missing)."""
    if error.sqlstate is None:
        return False
    return is_data_state(error.sqlstate) or error.sqlstate == _ROW_SECURITY or error.sqlstate.startswith("XX")
