-- Deletes one page of RESOLVED rows older than the retention. A row and its idempotency key are forgotten together.
DELETE FROM {table} AS t
 WHERE t.ctid = ANY (ARRAY(
        SELECT c.ctid FROM {table} AS c
         WHERE c.state = 'RESOLVED' AND c.resolved_at < clock_timestamp() - %(older_than_s)s::float8 * interval '1 second'
           AND c.id <> ALL (%(skip)s::{id_type}[])
         LIMIT %(n)s::int
           FOR UPDATE SKIP LOCKED))
   AND t.state = 'RESOLVED'
RETURNING t.id
