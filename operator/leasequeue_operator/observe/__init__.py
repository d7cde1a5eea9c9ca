"""Observation: the outside as seen now, each call with a deadline, each fault turned into a reason and a message."""
