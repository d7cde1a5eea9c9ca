-- Drops a CHECK that would refuse states of ours; its successor is added in the same transaction.
ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {name}
