"""`python -m benchmarks.operator`."""

from benchmarks.operator.cli import main

main()
