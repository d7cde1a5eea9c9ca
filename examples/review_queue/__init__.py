"""The review queue: variances between a ledger and a statement, adjudicated and posted exactly once."""
