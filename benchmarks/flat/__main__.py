"""`python -m benchmarks.flat`."""

from benchmarks.flat.cli import main

main()
