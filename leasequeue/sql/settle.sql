-- Ends leases other than by completion, fenced like resolve.sql: RETRY (SCHEDULED after a delay, FAILED once max_attempts is used up),
-- FAIL, REPAIR, RELEASE (PENDING, or SCHEDULED after a delay; the attempt is not counted). The lease is cleared in every case.
UPDATE {table} AS t
   SET state = CASE
                 WHEN verb.verb = 'FAIL' THEN 'FAILED'
                 WHEN verb.verb = 'REPAIR' THEN 'REPAIR'
                 WHEN verb.verb = 'RETRY' AND t.attempt >= %(max_attempts)s::int THEN 'FAILED'
                 WHEN verb.delay_s > 0 THEN 'SCHEDULED'
                 ELSE 'PENDING'
               END,
       run_at = CASE WHEN verb.verb IN ('RETRY', 'RELEASE') AND verb.delay_s > 0
                     THEN clock_timestamp() + verb.delay_s * interval '1 second' ELSE t.run_at END,
       attempt = CASE WHEN verb.verb = 'RELEASE' THEN greatest(t.attempt - 1, 0) ELSE t.attempt END,
       last_error = coalesce(verb.error, t.last_error),
       leased_by = NULL, leased_at = NULL, lease_expires_at = NULL, lease_token = NULL
  FROM unnest(%(ids)s::{id_type}[], %(tokens)s::uuid[], %(verbs)s::text[], %(delays)s::float8[], %(errors)s::text[])
         AS verb (id, token, verb, delay_s, error)
 WHERE t.id = verb.id
   AND t.state = 'ASSIGNED' AND t.leased_by = %(worker_id)s AND t.lease_token = verb.token
RETURNING t.id, t.state
