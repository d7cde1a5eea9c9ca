-- Ends the turn that schema_lock.sql took.
SELECT pg_advisory_unlock(hashtextextended('leasequeue schema ' || %(key)s::text, 0))
