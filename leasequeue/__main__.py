"""`python -m leasequeue` is the command line."""

from __future__ import annotations

from leasequeue.cli import main

if __name__ == "__main__":
    main()
