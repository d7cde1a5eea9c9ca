-- Ends a load inside the caller's transaction, which may load again before it commits.
DROP TABLE pg_temp.leasequeue_load
