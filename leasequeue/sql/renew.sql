-- Extends what a worker holds, in one statement; never shortens. A row that somebody has locked (its own handler's transaction, mostly) is
-- skipped, so that it costs the others nothing; it comes back as BUSY from renew_missing.sql.
-- Changes lease_expires_at alone, which is in no index: a HOT update.
UPDATE {table} AS t
   SET lease_expires_at = greatest(t.lease_expires_at, clock_timestamp() + %(lease_ms)s::int * interval '1 millisecond')
 WHERE t.id = ANY (ARRAY(
        SELECT held.id
          FROM unnest(%(ids)s::{id_type}[], %(tokens)s::uuid[]) AS lease (id, token)
         CROSS JOIN LATERAL (
                SELECT c.id
                  FROM {table} AS c
                 WHERE c.id = lease.id
                   AND c.state = 'ASSIGNED' AND c.leased_by = %(worker_id)s AND c.lease_token = lease.token
                   FOR UPDATE SKIP LOCKED) AS held))
RETURNING t.id
