"""The Python API: which names there are, for mkdocstrings, which reads signatures and docstrings at the build."""

from __future__ import annotations

import inspect
import re
from enum import Enum
from typing import Any

import leasequeue
from devtools.reference.markdown import head, section
from leasequeue import aio
from leasequeue.verdict import Verdict
from leasequeue_worker.context import AsyncContext, Context

HANDLER = (Context, AsyncContext)


def page() -> str:
    """The page.

    Raises:
        ValueError: a public name has no docstring, or one that tells of an argument which is not there.
    """
    names = {name: getattr(leasequeue, name) for name in leasequeue.__all__}
    for name, value in names.items():
        if not isinstance(value, dict) and not inspect.getdoc(value):
            raise ValueError(f"leasequeue.{name} has no docstring; add one")
    for value in (*names.values(), *HANDLER):
        _check_arguments(value)
    classes = {n: v for n, v in names.items() if inspect.isclass(v)}
    errors = {n: v for n, v in classes.items() if issubclass(v, Exception) and not issubclass(v, Verdict)}
    verdicts = {n: v for n, v in classes.items() if issubclass(v, Verdict)}
    enums = {n: v for n, v in classes.items() if issubclass(v, Enum)}
    rest = {n: v for n, v in classes.items() if n not in errors.keys() | verdicts.keys() | enums.keys()}
    functions = {n: v for n, v in names.items() if inspect.isfunction(v)}
    twins = ", ".join(f"`{n}`" for n in functions if hasattr(aio, n))
    first = (
        "Functions over a [psycopg](https://www.psycopg.org/psycopg3/docs/) connection. Each of these has an async twin of the same "
        f"arguments in `leasequeue.aio`: {twins}. What each guarantees is written at the head of its statement in `leasequeue/sql/`."
    )
    handler = "The second argument of a handler: `Context` where it is a function, `AsyncContext` where it is a coroutine."
    return (
        head("Python API", "leasequeue/__init__.py and the docstrings", first)
        + section("Functions", _entries(functions))
        + section(
            "What a handler gets",
            handler + "\n\n" + _entries({c.__name__: c for c in HANDLER}, package="leasequeue_worker.context"),
        )
        + section("Verdicts", _entries(verdicts))
        + section("States and outcomes", _entries(enums, more="show_if_no_docstring: true"))
        + section("Values", _entries(rest))
        + section("Errors", _entries(errors))
    )


def _entries(values: dict[str, Any], package: str = "leasequeue", more: str = "") -> str:
    return "\n\n".join(_entry(name, value, package) + (f"\n      {more}" if more else "") for name, value in values.items())


def _entry(name: str, value: Any, package: str) -> str:
    return (
        f"::: {value.__module__}.{value.__qualname__}\n    options:\n      heading: {package}.{name}\n      toc_label: {name}"
    )


def _check_arguments(value: Any) -> None:
    """Refuse a docstring whose `Args:` name what the function does not take."""
    if inspect.isclass(value):
        for member in vars(value).values():
            if inspect.isfunction(member):
                _check_arguments(member)
    elif inspect.isfunction(value):
        wrong = _told(inspect.getdoc(value) or "") - set(inspect.signature(value).parameters)
        if wrong:
            raise ValueError(f"{value.__module__}.{value.__qualname__}: its docstring tells of {', '.join(sorted(wrong))}")


def _told(text: str) -> set[str]:
    """Names under `Args:` of a docstring."""
    _, _, section_text = text.partition("\nArgs:\n")
    names: set[str] = set()
    for line in section_text.splitlines():
        if line and not line.startswith(" "):
            break
        if found := re.match(r" {4}(\w[\w, ]*):", line):
            names |= {name.strip() for name in found[1].split(",")}
    return names
