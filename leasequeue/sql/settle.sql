-- Ends leases other than by completion, fenced like resolve.sql: RETRY (SCHEDULED after a delay, FAILED once max_attempts is used up),
-- FAIL, REPAIR, RELEASE (PENDING, or SCHEDULED after a delay; the attempt is not counted). The lease is cleared in every case.
UPDATE {table} AS t
   SET (state, run_at, attempt, last_error, leased_by, leased_at, lease_expires_at, lease_token) = (
        SELECT CASE
                 WHEN given.verb = 'FAIL' THEN 'FAILED'
                 WHEN given.verb = 'REPAIR' THEN 'REPAIR'
                 WHEN given.verb = 'RETRY' AND t.attempt >= %(max_attempts)s::int THEN 'FAILED'
                 WHEN given.delay_s > 0 THEN 'SCHEDULED'
                 ELSE 'PENDING'
               END,
               CASE WHEN given.verb IN ('RETRY', 'RELEASE') AND given.delay_s > 0
                    THEN clock_timestamp() + given.delay_s * interval '1 second' ELSE t.run_at END,
               CASE WHEN given.verb = 'RELEASE' THEN greatest(t.attempt - 1, 0) ELSE t.attempt END,
               coalesce(given.error, t.last_error),
               NULL, NULL::timestamptz, NULL::timestamptz, NULL::uuid
          FROM (SELECT (%(verbs)s::text[])[at] AS verb, (%(delays)s::float8[])[at] AS delay_s, (%(errors)s::text[])[at] AS error
                  FROM (SELECT array_position(%(tokens)s::uuid[], t.lease_token) AS at) AS place) AS given)
 WHERE t.id = ANY (%(ids)s::{id_type}[])
   AND t.state IS NOT DISTINCT FROM 'ASSIGNED'
   AND t.leased_by IS NOT DISTINCT FROM %(worker_id)s
   AND t.lease_token = ANY (%(tokens)s::uuid[])
RETURNING t.id, t.state
