"""Planning: from what was observed to what should exist. Pure functions, dict in and dict out, no I/O."""
