-- As resolve_results.sql, and sets columns of the user's own in the same statement. Their values travel as one JSON object a row and are
-- converted by the column's own type, exactly (numbers in jsonb are numeric).
WITH done AS (
UPDATE {table} AS t
   SET state = 'RESOLVED', resolved_at = clock_timestamp(),
       result = (%(results)s::jsonb[])[array_position(%(tokens)s::uuid[], t.lease_token)],
       ({targets}) = (SELECT {sources}
                        FROM jsonb_populate_record(NULL::{table}, (%(columns)s::jsonb[])[array_position(%(tokens)s::uuid[], t.lease_token)]) AS given)
 WHERE t.id = ANY (%(ids)s::{id_type}[])
   AND t.state IS NOT DISTINCT FROM 'ASSIGNED'
   AND t.leased_by IS NOT DISTINCT FROM %(worker_id)s
   AND t.lease_token = ANY (%(tokens)s::uuid[])
RETURNING t.id
)
SELECT count(*) AS n, CASE WHEN count(*) < cardinality(%(ids)s::{id_type}[]) THEN array_agg(done.id) END AS ids FROM done
