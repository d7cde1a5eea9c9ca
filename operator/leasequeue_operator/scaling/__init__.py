"""Scaling: from depth and memory to a number of workers. Pure functions, shared by the operator and simulations."""
