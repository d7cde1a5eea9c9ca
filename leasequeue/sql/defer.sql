-- Moves PENDING rows whose run_at lies in the future (written by clients that do not know SCHEDULED) out of the claim's way, looking at the
-- first n rows of the claim order: deeper ones harm nobody until they get there. Locks only the rows that it moves.
UPDATE {table} AS t
   SET state = 'SCHEDULED'
 WHERE t.id = ANY (ARRAY(
        SELECT locked.id
          FROM (SELECT c.id FROM {table} AS c
                 WHERE c.state = 'PENDING'
                 ORDER BY -c.priority, c.created_at, c.id
                 LIMIT %(n)s::int) AS near
         CROSS JOIN LATERAL (
                SELECT c.id FROM {table} AS c
                 WHERE c.id = near.id AND c.state = 'PENDING' AND c.run_at > clock_timestamp()
                   AND c.id <> ALL (%(skip)s::{id_type}[])
                   FOR UPDATE SKIP LOCKED) AS locked))
RETURNING t.id
