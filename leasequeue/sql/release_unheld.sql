-- Gives back rows that are leased to this worker but that it does not know of: the reply to its claim was lost. The attempt is not counted.
UPDATE {table} AS t
   SET state = 'PENDING', attempt = greatest(t.attempt - 1, 0),
       leased_by = NULL, leased_at = NULL, lease_expires_at = NULL, lease_token = NULL
 WHERE t.id = ANY (ARRAY(
        SELECT c.id FROM {table} AS c
         WHERE c.state = 'ASSIGNED' AND c.leased_by = %(worker_id)s
           AND NOT coalesce(c.lease_token = ANY (%(held)s::uuid[]), false)
           AND c.id <> ALL (%(skip)s::{id_type}[])
           FOR UPDATE SKIP LOCKED))
RETURNING t.id
