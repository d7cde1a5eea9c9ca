-- Version of the control schema (queue 0) or of one queue's table; no row where it was never applied.
SELECT version FROM leasequeue.schema_version WHERE queue = %(queue)s
