"""Benchmarks of LeaseQueue; see README.md."""
