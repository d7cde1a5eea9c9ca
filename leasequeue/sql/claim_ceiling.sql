-- Makes claims under max_inflight = Enforce take turns. A statement of its own, before the claim: the claim's snapshot must be
-- taken after the lock is held, otherwise it counts without the rows that the previous holder just committed (50 became 190).
SELECT pg_advisory_xact_lock(%(ceiling_key)s::bigint)::text AS locked
