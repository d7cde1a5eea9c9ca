-- As resolve.sql, and stores each item's result in the same statement. The result is found by token, never by id: a batch may hold a lost
-- lease and its successor on one item, and the lost one's result must not be stored.
WITH done AS (
UPDATE {table} AS t
   SET state = 'RESOLVED', resolved_at = clock_timestamp(),
       result = (%(results)s::jsonb[])[array_position(%(tokens)s::uuid[], t.lease_token)]
 WHERE t.id = ANY (%(ids)s::{id_type}[])
   AND t.state IS NOT DISTINCT FROM 'ASSIGNED'
   AND t.leased_by IS NOT DISTINCT FROM %(worker_id)s
   AND t.lease_token = ANY (%(tokens)s::uuid[])
RETURNING t.id
)
SELECT count(*) AS n, CASE WHEN count(*) < cardinality(%(ids)s::{id_type}[]) THEN array_agg(done.id) END AS ids FROM done
