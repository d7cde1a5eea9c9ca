-- One create or adopt at a time for a name. Tried, never waited for: a waiting statement holds a snapshot, and
-- CREATE INDEX CONCURRENTLY of the holder would wait for that snapshot, so both would wait for ever.
SELECT pg_try_advisory_lock(hashtextextended('leasequeue schema ' || %(key)s::text, 0))
