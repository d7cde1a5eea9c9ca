-- As resolve.sql, and stores each item's result in the same statement.
UPDATE {table} AS t
   SET state = 'RESOLVED', resolved_at = clock_timestamp(),
       result = (%(results)s::jsonb[])[array_position(%(ids)s::{id_type}[], t.id)]
 WHERE t.id = ANY (%(ids)s::{id_type}[])
   AND t.state = 'ASSIGNED'
   AND t.leased_by IS NOT DISTINCT FROM %(worker_id)s
   AND t.lease_token = ANY (%(tokens)s::uuid[])
RETURNING t.id
