"""Loading a handler from `package.module:function`, with errors that say what is missing."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

from leasequeue.errors import BadInput
from leasequeue.item import Item

SyncHandler = Callable[[Item, Any], Any]
AsyncHandler = Callable[[Item, Any], Awaitable[Any]]


@dataclass(frozen=True)
class Handler:
    """A loaded handler.

    Args:
        name: `package.module:function`.
        call: the function.
        is_async: True for a coroutine function.
    """

    name: str
    call: Callable[[Item, Any], Any]
    is_async: bool


def load_handler(name: str) -> Handler:
    """Import `package.module:function` (attributes of attributes too: `module:object.method`).

    The working directory is searched as `python -m` does, so that a worker run by hand finds the module beside it.

    Raises:
        BadInput: no module, no function, not callable, or not callable as `handler(item, ctx)`; says which.
    """
    module_name, colon, path = name.partition(":")
    if not (module_name and colon and path):
        raise BadInput("handler", name, "must be package.module:function, for example billing.review:handle")
    module = _import(name, module_name)
    found: Any = module
    for part in path.split("."):
        if not hasattr(found, part):
            raise BadInput("handler", name, f"{module_name} has no {path!r}; it has: {_functions(module)}")
        found = getattr(found, part)
    if not callable(found):
        raise BadInput("handler", name, f"is a {type(found).__name__}, not a function")
    _check_signature(name, found)
    is_async = inspect.iscoroutinefunction(found) or inspect.iscoroutinefunction(type(found).__call__)
    return Handler(name, cast(Callable[[Item, Any], Any], found), is_async)


def _import(name: str, module_name: str) -> Any:
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as ex:
        if ex.name and (module_name == ex.name or module_name.startswith(f"{ex.name}.")):
            raise BadInput(
                "handler", name, f"no module {ex.name!r} in {here} or in the Python environment; install it or set PYTHONPATH"
            ) from ex
        raise BadInput("handler", name, f"module {module_name} needs a module that is not installed: {ex.name}") from ex
    except Exception as ex:
        raise BadInput("handler", name, f"importing {module_name} failed: {type(ex).__name__}: {ex}") from ex


def _functions(module: Any) -> str:
    names = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_") and not inspect.isclass(v)]
    return ", ".join(sorted(names)[:10]) or "no functions"


def _check_signature(name: str, function: Any) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # a builtin without one
    try:
        signature.bind(None, None)
    except TypeError:
        raise BadInput("handler", name, f"takes {signature}; it must be callable as handler(item, ctx)") from None
