"""The command line `leasequeue`."""

from __future__ import annotations

from leasequeue.cli.app import main

__all__ = ["main"]
