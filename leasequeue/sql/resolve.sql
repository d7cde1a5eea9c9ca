-- Completes items and stores their results, in one statement, fenced: only rows still ASSIGNED under this worker and this token change.
-- A zombie's completion changes nothing. leased_by and lease_token stay, so that a repeat is recognised as one's own.
UPDATE {table} AS t
   SET state = 'RESOLVED', resolved_at = clock_timestamp(), result = done.result
  FROM unnest(%(ids)s::{id_type}[], %(tokens)s::uuid[], %(results)s::jsonb[]) AS done (id, token, result)
 WHERE t.id = done.id
   AND t.state = 'ASSIGNED' AND t.leased_by = %(worker_id)s AND t.lease_token = done.token
RETURNING t.id
