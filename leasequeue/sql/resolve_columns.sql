-- As resolve.sql, and sets columns of the user's own in the same statement. Their values travel as one JSON object a row and are
-- converted by the column's own type, exactly (numbers in jsonb are numeric).
UPDATE {table} AS t
   SET state = 'RESOLVED', resolved_at = clock_timestamp(), result = done.result,
       {assignments}
  FROM unnest(%(ids)s::{id_type}[], %(tokens)s::uuid[], %(results)s::jsonb[], %(columns)s::jsonb[])
         AS done (id, token, result, columns)
 CROSS JOIN LATERAL jsonb_populate_record(NULL::{table}, done.columns) AS given
 WHERE t.id = done.id
   AND t.state = 'ASSIGNED' AND t.leased_by = %(worker_id)s AND t.lease_token = done.token
RETURNING t.id
