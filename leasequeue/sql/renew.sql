-- Extends what a worker holds, in one statement; never shortens. A row that somebody has locked (its own handler's transaction, mostly) is
-- skipped, so that it costs the others nothing; lease_status.sql then tells that it still stands.
-- Changes lease_expires_at alone, which is in no index: a HOT update. Rows are found by primary key alone, see resolve.sql.
UPDATE {table} AS t
   SET lease_expires_at = greatest(t.lease_expires_at, clock_timestamp() + %(lease_ms)s::int * interval '1 millisecond')
 WHERE t.id = ANY (ARRAY(
        SELECT c.id
          FROM {table} AS c
         WHERE c.id = ANY (%(ids)s::{id_type}[])
           AND c.state IS NOT DISTINCT FROM 'ASSIGNED'
           AND c.leased_by IS NOT DISTINCT FROM %(worker_id)s
           AND c.lease_token = ANY (%(tokens)s::uuid[])
           FOR UPDATE SKIP LOCKED))
RETURNING t.id
