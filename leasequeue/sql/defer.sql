-- Moves one page of PENDING rows whose run_at lies in the future (written by clients that do not know SCHEDULED) out of the claim's way.
-- Walks the claim order after the last id seen, a bounded number of rows at a time, so that a long queue is never read whole.
UPDATE {table} AS t
   SET state = 'SCHEDULED'
 WHERE t.id = ANY (ARRAY(
        SELECT near.id
          FROM (SELECT c.id, c.run_at FROM {table} AS c
                 WHERE c.state = 'PENDING'
                 ORDER BY -c.priority, c.created_at, c.id
                 LIMIT %(n)s::int
                   FOR UPDATE SKIP LOCKED) AS near
         WHERE near.run_at > clock_timestamp()))
RETURNING t.id
